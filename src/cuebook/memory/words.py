"""What counts as a word of a text: the one tokeniser that the store's full text and the ranking share.

Words are lower-cased, stripped of diacritics and stemmed (Snowball English; other languages keep their forms). Scripts
written without spaces (Chinese, Japanese, Thai …) and Hangul give single characters and pairs, as Lucene's
CJKAnalyzer does, so that a name inside a run is found. Identifiers give their parts beside the whole: `getUserId` is
`getuserid`, `get`, `user`, `id`. A word holds letters and digits only, so FTS5's `unicode61` keeps it in one piece.
"""

import re
import unicodedata
from functools import lru_cache
from typing import Final

from snowballstemmer.english_stemmer import EnglishStemmer

LONGEST_WORD: Final = 48  # characters kept; a digest in hex is told apart by far fewer

# English words that carry structure, not topic: articles, pronouns, prepositions, auxiliaries, question words.
# Measured on LoCoMo: stop words and stems together are worth 9 points of R@10 (notes/recall.md, 4.1).
_ENGLISH: Final = frozenset(
    """
    a about above after again against all also am an and any are as at be because been before being below between both
    but by can cannot could did do does doing done down during each either else ever every few for from further get gets
    got had has have having he her here hers herself him himself his how however i if in into is it its itself just let
    may me might more most much must my myself neither no nor not of off on once only onto or other ought our ours
    ourselves out over own per quite rather really same shall she should since so some such than that the their theirs
    them themselves then there these they this those though through to too under until up upon us very was we were what
    whatever when where whether which while who whom whose why will with within without would yes yet you your yours
    yourself yourselves s t re ve ll d m
    """.split()
)
# The same of other languages: they leave a query that is written in them, never a text.
_FOREIGN: Final = tuple(
    frozenset(words.split())
    for words in (
        """aber alle als am an auch auf aus bei bin bis bist da damit das dass dein dem den der des die dir du ein eine
        einem einen einer er es fur habe haben hast hat hatte ich ihr im in ist ja kann mein mich mir mit nach nicht
        noch nur oder sein sich sie sind so uber um und uns von vor wann war waren warum was welche welcher welches wem
        wen wenn wer werden wie wir wird wo zu zum zur""",
        """a ai ait as au aux avec avez c ce ces cette d dans de des du elle en es est et eu il ils j je l la le les leur
        lui m ma mais me mes moi mon n ne nos notre nous on ont ou par pas pour qu quand que quel quelle quelles quels
        qui quoi s sa se ses son sont suis sur t ta te tes toi ton tu un une vos votre vous y""",
        """a al como con cual cuales cuando de del donde el ella ellos en era es esta estas este esto fue ha han hay la
        las le les lo los me mi mis muy no nos o para pero por porque que quien quienes se ser si sin sobre son su sus
        te tu tus un una unos y ya yo""",
    )
)

# Forms the stemmer leaves apart from their word, base form first: what is asked in one tense was told in another ("when
# did she buy" and "I bought"). Measured on LoCoMo dev: +0.9 points of R@10. The last lines: everyday equals.
_IRREGULAR: Final = """
    become became, begin began begun, bite bitten, blow blew blown, break broke broken, bring brought, build built,
    burn burnt, buy bought, catch caught, choose chose chosen, come came, deal dealt, dig dug, draw drew drawn, dream
    dreamt, drink drank drunk, drive drove driven, eat ate eaten, fall fell fallen, feed fed, feel felt, fight fought, find
    found, fly flew flown, forget forgot forgotten, forgive forgave forgiven, freeze froze frozen, give gave given, go went
    gone, grow grew grown, hang hung, hear heard, hide hid hidden, hold held, keep kept, know knew known, lay laid, lead
    led, learn learnt, leave left, lend lent, lose lost, make made, mean meant, meet met, pay paid, ride rode ridden, rise
    risen, run ran, say said, see saw seen, sell sold, send sent, shake shook shaken, shine shone, shoot shot, show
    shown, sing sang sung, sink sank sunk, sit sat, sleep slept, speak spoke spoken, spend spent, stand stood, steal stole
    stolen, stick stuck, strike struck, swear swore sworn, sweep swept, swim swam swum, swing swung, take took taken, teach
    taught, tear tore torn, tell told, think thought, throw threw thrown, understand understood, wake woke woken, wear wore
    worn, win won, write wrote written, child children, man men, woman women, foot feet, tooth teeth, mouse mice, goose
    geese, person people, wife wives, knife knives, shelf shelves, half halves,
    mother mom mum mama mommy moms mums, father dad daddy papa dads, child kid kids, picture photo photos pic pics
    photograph photographs, movie film films, grandmother grandma, grandfather grandpa, favorite favourite fave, color
    colour colours
"""
_BASE: Final = {
    form: base
    for line in _IRREGULAR.split(",")
    for base, *forms in [line.split()]
    for form in forms
}  # fmt: skip

_APOSTROPHES: Final = str.maketrans({"\u2019": "'", "\u2018": "'", "\u02bc": "'", "\uff07": "'", "_": " "})
_MARKS: Final = re.compile("[\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u1ab0-\u1aff\u1dc0-\u1dff]+")
# Letters, digits and, in the scripts of India, their vowel signs (marks, which `\w` leaves out).
_TOKEN: Final = re.compile("[^\\W_\u0900-\u0dff]+(?:'[^\\W_]+)*|[\u0900-\u0963\u0966-\u0dff]+")
_UNSPACED: Final = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3005\u3040-\u30ff\u3130-\u318f\u31f0-\u31ff\u3400-\u4dbf"
    "\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff]+"
)
_ORDINAL: Final = re.compile("([0-9]+)(?:st|nd|rd|th)")
_HUMP: Final = re.compile("(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def words(text: str) -> list[str]:
    """The words of a text in order, stemmed, without English stop words. About 0.2 µs a word once its stem is cached."""
    found: list[str] = []
    plain = text.isascii()
    for token in _TOKEN.findall(_fold(text, plain=plain)):
        if not plain and _UNSPACED.search(token):
            for run in _runs(token):
                found += _characters(run) if _UNSPACED.match(run) else _stems(run[:LONGEST_WORD])
        else:
            found += _stems(token[:LONGEST_WORD])
    return found


def query_words(text: str) -> list[str]:
    """The words a query looks for, in order: of an unspaced run the pairs only, without stop words of its language."""
    found: list[str] = []
    for token in _drop_foreign(_TOKEN.findall(_fold(text, plain=text.isascii()))):
        for run in _runs(token):
            if _UNSPACED.match(run):
                found += _pairs(run) or [run]
            else:
                found += _stems(run[:LONGEST_WORD])
    return found


def _fold(text: str, *, plain: bool) -> str:
    """Compatibility forms made plain (full width, ligatures), diacritics dropped, one kind of apostrophe."""
    if plain:
        return text.replace("_", " ") if "_" in text else text
    bare = _MARKS.sub("", unicodedata.normalize("NFKD", text.translate(_APOSTROPHES)))
    return unicodedata.normalize("NFC", bare)


@lru_cache(maxsize=1 << 15)
def _stems(token: str) -> tuple[str, ...]:
    """The words one spelled token stands for: none for a stop word, several for an identifier."""
    lower = token.casefold()
    if "'" in lower:
        return _contracted(token)
    if lower in _ENGLISH and token != "May":  # noqa: S105 - the month, unlike the verb, has its capital
        return ()
    ordinal = _ORDINAL.fullmatch(lower)
    if ordinal:
        return (ordinal[1],)
    parts = _HUMP.split(token) if lower != token and len(token) > 3 else [token]
    whole = (_stem(lower),)
    return whole if len(parts) == 1 else whole + tuple(_stem(part.casefold()) for part in parts if len(part) > 1)


def _contracted(token: str) -> tuple[str, ...]:
    """`Anna's` is Anna, `don't` and `we'll` are structure, of `l'amour` and `O'Brien` both sides count."""
    head, *rest = token.split("'")
    if rest[-1].casefold() == "t":
        return ()
    sides = [head, *(side for side in rest if len(side) > 2)]
    return tuple(stem for side in sides if len(side) > 1 for stem in _stems(side))


def _stem(word: str) -> str:
    """One stem. A new stemmer each time: it keeps its place in itself, so threads must not share one; it costs 0.2 µs."""
    return str(EnglishStemmer().stemWord(_BASE.get(word, word))) if word.isascii() and not word.isdigit() else word


def _runs(token: str) -> list[str]:
    """A token cut where a script without spaces begins or ends."""
    found: list[str] = []
    place = 0
    for match in _UNSPACED.finditer(token):
        found += [token[place : match.start()], match[0]]
        place = match.end()
    return [run for run in [*found, token[place:]] if run]


def _pairs(run: str) -> list[str]:
    return [run[at : at + 2] for at in range(len(run) - 1)]


def _characters(run: str) -> list[str]:
    """Every character and every pair of neighbours: a query of one character finds as well as one of a name."""
    return [*run, *_pairs(run)]


def _drop_foreign(tokens: list[str]) -> list[str]:
    """Leave out the stop words of German, French or Spanish if the query is in it: two of them, and more than of English."""
    lowered = [token.casefold() for token in tokens]
    english = sum(word in _ENGLISH for word in lowered)
    counts = [sum(word in stop for word in lowered) for stop in _FOREIGN]
    most = max(counts)
    if most < 2 or most <= english:
        return tokens
    stop = _FOREIGN[counts.index(most)]
    return [token for token, word in zip(tokens, lowered, strict=True) if word not in stop]
