"""The methods that read how a message sounds, by name. Method `llm` is in `signals/model_sentiment`."""

from collections.abc import Iterable
from typing import Any, Final

from msgspec import structs

from cuebook.records.mind import Sentiment
from cuebook.records.persona import METHODS
from cuebook.signals.classifier import Classifier
from cuebook.signals.emphasis import polarity_of
from cuebook.signals.lexicon import Lexicon

#: What stands in for a method that has not answered yet.
FALLBACK: Final = Lexicon.name
#: From which mean on a text is positive: what is right most often on GoEmotions' dev set (F1; .05 to .3 were tried).
_POLAR: Final = 0.15


class Both:
    """The mean of lexicon and classifier: closer to what people say than either."""

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
    """Return the methods a book has of its own. Nothing is loaded until one of them reads."""
    return {each.name: each for each in (Lexicon(), Classifier(), Both())}


def methods_of(analyzers: Iterable[str]) -> tuple[str, ...]:
    """Name the methods a persona may ask for: A's, and those a book has beside them."""
    return tuple(dict.fromkeys((*METHODS, *analyzers)))
