"""How much a word says of what a text is about, where a handful of texts is all there is to count it in."""

from functools import cache
from typing import Final

from cuebook.memory.words import stop_words, words

#: Share of the weight that stays to a word every piece of advice begins with. A list of the commonest English words
#: beside it, at 0.3, made nothing better (docs/design/014).
FRAMING_SHARE: Final = 0.1

_FRAMING: Final = """
    use used using when if whenever user users customer customers client person people somebody someone ask asks asked
    asking request requests want wants wanted need needs help question questions task tasks case situation require
    requires involve involves about related mention mentions mentioned talk talks give gives make makes get gets work
    works do does start set thing things way new good problem problems issue issues please tell know see let show say
    several many some long time old
"""


#: The same of German, French and Spanish.
_FOREIGN: Final = """
    kunde kunden kundin nutzer benutzer nutzerin person jemand fragt frage mochte will wunscht braucht verlangt bittet
    hilfe falls sobald client cliente utilisateur utilisatrice usuario usuaria demande veut besoin souhaite aide si
    lorsque pide quiere necesita pregunta ayuda desea
"""


def share_of(word: str) -> float:
    """Give the share of its weight that a stemmed word keeps, in (0, 1]."""
    return FRAMING_SHARE if word in _framing() else 1.0


@cache
def _framing() -> frozenset[str]:
    little = (" ".join(stop_words(code)) for code in ("de", "fr", "es"))
    return frozenset(stem for text in (_FRAMING, _FOREIGN, *little) for stem in words(text))
