"""Engine: runs turns and background jobs. The only package that depends on time."""
