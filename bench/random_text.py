"""Synthetic text for the benchmarks, as uneven as that of agents and users, and the same in every run.

Half of the words are common function words. The others follow Zipf's law over some thousand made-up words, so an index,
an estimator and a search expression meet realistic frequencies. Numbers, dates, paths and names in backquotes occur now
and then, because extraction looks for them.
"""

import random
from itertools import accumulate

_COMMON = """the of and to in a is that for it as was with be by on not he his but at are this have from or had an they
which one you were her all she there would their we him been has when who will more no if out so said what up its about
into than them can only other new some could time these two may then do first any my now such like our over man me even
most made after also did many before must through back where much your way well down should because each just those how
too good very make world still own see men work long get here between both under never day same another know""".split()
_SOUNDS = """ba co di fe gu ha ke li mo nu pa qui ro se ti va wo ze bra cle dro fla gri pla sto tru sha che the ning ter
ment""".split()
_EXTRAS = (
    "{n}", "2024-0{d}-1{d}", "/srv/app/{w}/{w}.py", "`{w}_{w}`", "{n} EUR", "https://example.org/{w}/{n}",
    "v{d}.{d}.{d}", "{w}@example.org",
)  # fmt: skip
_VOCABULARY = 6_000


class TextGenerator:
    """A generator of random text."""

    def __init__(self, seed: int = 1) -> None:
        self._dice = random.Random(seed)  # noqa: S311  # every run needs the same text
        made = [self._word() for _ in range(_VOCABULARY)]
        self._words = list(dict.fromkeys(made))
        self._weights = list(accumulate(1 / (rank + 20) for rank in range(1, len(self._words) + 1)))
        self._common = list(accumulate(1 / rank for rank in range(3, len(_COMMON) + 3)))

    def _word(self) -> str:
        return "".join(self._dice.choices(_SOUNDS, k=self._dice.choice((2, 2, 3, 3, 4))))

    def rare(self, count: int = 1) -> list[str]:
        """Return random words of the vocabulary."""
        return self._dice.choices(self._words, cum_weights=self._weights, k=count)

    def post(self, words: int) -> str:
        """Return a post of the given number of words, in sentences."""
        said: list[str] = []
        while len(said) < words:
            length = min(self._dice.randint(5, 18), words - len(said))
            common = self._dice.choices(_COMMON, cum_weights=self._common, k=length)
            rare = self.rare(length)
            sentence = [one if self._dice.random() < 0.5 else other for one, other in zip(common, rare, strict=True)]
            if self._dice.random() < 0.15:
                sentence[-1] = self._extra()
            sentence[0] = sentence[0].capitalize()
            sentence[-1] += self._dice.choice(".....?!")
            said.extend(sentence)
        return " ".join(said)

    def about(self, mean: int) -> str:
        """Return a post with a random length of about `mean` words: most are shorter, some much longer."""
        return self.post(max(2, min(mean * 6, round(self._dice.lognormvariate(0, 0.7) * mean * 0.8))))

    def log(self, lines: int) -> str:
        """Return a tool's log output: lines with times, levels and source locations."""
        return "\n".join(
            f"2024-03-1{number % 9} 10:{number % 60:02}:07 {self._dice.choice(('INFO', 'DEBUG', 'WARN'))}"
            f" /srv/app/{self.rare()[0]}.py:{self._dice.randint(1, 900)} {self.post(self._dice.randint(4, 9))}"
            for number in range(lines)
        )

    def number(self, low: int, high: int) -> int:
        """Return a number between two."""
        return self._dice.randint(low, high)

    def _extra(self) -> str:
        form = self._dice.choice(_EXTRAS)
        word, other = self.rare(2)
        return form.replace("{w}", word, 1).format(
            w=other, n=self._dice.randint(10, 99_999), d=self._dice.randint(1, 9)
        )
