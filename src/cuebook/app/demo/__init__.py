"""`cuebook demo`: a long conversation goes through the whole pipeline, and what that came to."""

from cuebook.app.demo.run import HITS, ReplayReport, demo_config, demo_folder, run_demo, shipped, to_wire

__all__ = ["HITS", "ReplayReport", "demo_config", "demo_folder", "run_demo", "shipped", "to_wire"]
