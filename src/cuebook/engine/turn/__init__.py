"""One turn: from the read of a scene to the stored reply."""
