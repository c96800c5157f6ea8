"""`cuebook eval`: evaluate memory quality on your own conversations, without a model."""

from cuebook.memory.evidence import EvidenceRecall

__all__ = ["EvidenceRecall"]
