"""Import and export transcripts: detect the format, store in batches, write other formats."""
