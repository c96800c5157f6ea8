"""`cuebook eval`: evaluate memory quality on your own conversations, without a model."""

from cuebook.app.evaluate.run import QUESTIONS, CurrentFacts, Evaluation, evaluate, to_wire, together

__all__ = ["QUESTIONS", "CurrentFacts", "Evaluation", "evaluate", "to_wire", "together"]
