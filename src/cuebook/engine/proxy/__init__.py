"""Proxy: send requests of provider clients upstream with a built context window, and relay the answers unchanged."""
