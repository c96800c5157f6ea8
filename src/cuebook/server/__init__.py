"""The HTTP door: addresses, bodies and errors on the wire. What they mean is decided behind it."""
