"""The inspector: pages a browser shows of a book, live. Server-rendered; a few small scripts of our own, no build."""
