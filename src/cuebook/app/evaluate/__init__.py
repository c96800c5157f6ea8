"""`cuebook eval`: evaluate memory quality on your own conversations, without a model."""

from cuebook.app.evaluate.run import QUESTIONS, Evaluation, evaluate, to_wire, together
from cuebook.memory.evidence import EvidenceRecall

__all__ = ["QUESTIONS", "Evaluation", "EvidenceRecall", "evaluate", "to_wire", "together"]
