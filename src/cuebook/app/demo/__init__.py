"""`cuebook demo`: replay a long conversation through the whole pipeline, and report the results."""

from cuebook.app.demo.run import HITS, ReplayReport, demo_config, demo_folder, run_demo, shipped, to_wire

__all__ = ["HITS", "ReplayReport", "demo_config", "demo_folder", "run_demo", "shipped", "to_wire"]
