"""`cuebook eval`: how good memory is on somebody's own conversations, measured without a model."""

from cuebook.app.evaluate.run import QUESTIONS, CurrentFacts, Evaluation, evaluate, to_wire, together

__all__ = ["QUESTIONS", "CurrentFacts", "Evaluation", "evaluate", "to_wire", "together"]
