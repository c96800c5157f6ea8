"""The proxy: requests of provider clients go upstream with their window, and answers come back as they came."""
