"""One file per revision, v0001, v0002 …; each stands as it was released, so it imports nothing that changes with us."""
