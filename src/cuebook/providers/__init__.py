"""Models, embedders and upstreams, and what the machine gives: its clock and ids."""
