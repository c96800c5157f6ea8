"""The registry of sentiment methods by name. Method `llm` is in `signals/model_sentiment`."""

from collections.abc import Iterable
from typing import Any, Final

from msgspec import structs

from cuebook.records.mind import Sentiment
from cuebook.records.persona import METHODS
from cuebook.signals.classifier import Classifier
from cuebook.signals.emphasis import polarity_of
from cuebook.signals.lexicon import Lexicon

#: The placeholder for a method that has not answered yet.
FALLBACK: Final = Lexicon.name
#: The mean from which a text is positive: the best F1 on GoEmotions' dev set (.05 to .3 were tried).
_POLAR: Final = 0.15


class Both:
    """The mean of lexicon and classifier, which is more accurate than either."""

    name: Final = "lexicon_and_classifier"

    def __init__(self) -> None:
        self._lexicon, self._classifier = Lexicon(), Classifier()

    def read(self, text: str) -> Sentiment:
        one = self._lexicon.read(text)
        if one.polarity == "unknown":
            return structs.replace(one, method=self.name)
        other = self._classifier.read(text)
        score = round((one.score + other.score) / 2, 4) + 0.0
        return Sentiment(
            score=score,
            intensity=round((one.intensity + other.intensity) / 2, 4),
            polarity=polarity_of(score, _POLAR),
            method=self.name,
            negatives=one.negatives,
        )


def analyzers_of() -> dict[str, Any]:
    """Return the project's own methods. Nothing is loaded until the first use of one."""
    return {each.name: each for each in (Lexicon(), Classifier(), Both())}


def methods_of(analyzers: Iterable[str]) -> tuple[str, ...]:
    """Return the methods that a persona may name: AgentOS's, and those of the project."""
    return tuple(dict.fromkeys((*METHODS, *analyzers)))
