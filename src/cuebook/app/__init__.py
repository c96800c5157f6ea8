"""The public API and the composition root: the only package that imports both the engine and the backends."""
