"""`cuebook eval`: evaluate memory quality on your own conversations, without a model."""

from cuebook.app.evaluate.run import QUESTIONS, CurrentFacts, Evaluation, evaluate, to_wire, together
from cuebook.memory.evidence import EvidenceRecall

__all__ = ["QUESTIONS", "CurrentFacts", "Evaluation", "EvidenceRecall", "evaluate", "to_wire", "together"]
