"""What is remembered: extracting, merging, summarising, recalling. Pure."""
