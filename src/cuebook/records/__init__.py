"""The nouns of Cuebook: frozen records, and the codec that reads and writes them."""
