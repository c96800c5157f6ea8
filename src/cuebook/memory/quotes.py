"""Extract dated verbatim quotes: select the sentences of a user's posts that memory keeps, and weigh them. No model.

No sentence is interpreted. Grammar-free features set its weight: dates, numbers, names, the count of content words, and
the word lists of its language. A quote that cannot stand alone includes the sentence before it, or the question that
it answers. docs/design/006-rolling-memory.md has the measurements.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice, pairwise
from typing import Final

from cuebook.languages import Language, detect, language
from cuebook.memory.tokenizer import CONSONANT, item_id, subject_of
from cuebook.records.marks import plain
from cuebook.records.memory import Category, Item, Line

#: A quote with at least this score is listed as an item; one below it only fills the summary.
LISTED_SCORE: Final = 2.6
#: The score that equals a weight of 1.
FULL_SCORE: Final = 10.0
#: Weight from which a quote is listed as an item.
LISTED: Final = LISTED_SCORE / FULL_SCORE
#: Weights of questions and requests: a summary drops them first.
ASKED_WEIGHT: Final = 0.01
#: Points of each feature. DAMPED damps the count of a sign.
POINTS: Final = {
    "date": 2.2, "health": 1.8, "number": 1.3, "name": 1.0, "update": 1.0, "rule": 0.9, "remember": 0.9, "people": 0.8,
    "identity": 0.8, "answer": 0.8, "limit": 0.7, "decision": 0.6, "preference": 0.5, "self": 0.4, "todo": 0.4,
    "brief": -0.3, "exclaimed": -0.4, "praise": -0.85, "told": -1.0, "smalltalk": -1.0, "passing": -1.1,
    "reported": -0.6,
}  # fmt: skip
DAMPED: Final = 0.6
#: Points of content words, for at most MOST_WORDS of them.
WORD_POINTS: Final = 0.95
WORD_POWER: Final = 0.7
MOST_WORDS: Final = 4
#: Extra points in languages without spaces, where fewer features are found.
UNSPACED_POINTS: Final = 2.1
#: A quote with fewer content words needs the sentence before it.
ALONE: Final = 3
#: A reply of at most this many words keeps the question that it answers, cut to this many characters.
SHORT_REPLY: Final = 6
QUESTION_LENGTH: Final = 80
#: Signs of a condition that make a sentence hypothetical: "if" and "would".
HYPOTHETICAL: Final = 2
#: The opening words of a sentence, which show a request or a question.
OPENING: Final = 3
#: Maximum characters of a post that are read, and of a sentence that is not split.
READ: Final = 20_000
LONGEST: Final = 400
#: Characters before a full stop that may be an abbreviation.
ABBREVIATION: Final = 13
#: Characters of Chinese or Japanese that count as one word.
_CHARACTERS_A_WORD: Final = 2

_SKIPPED: Final = re.compile(
    r"```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)"
    r"|^[ \t]*(?:[{}\[\]|<]|at [\w.$<>]+\(|\d{4}-\d\d-\d\d[T ]\d\d:|\w+Error\b)[^\n]*$"
    r"|^[ \t]*(?:(?:[-*+•]|\d{1,2}[.)])[ \t]+)?[\u200b-\u200f\u2060\ufeff]*"  # a quoted line, also in a list
    r"(?:[>＞›❯]|&(?:amp;)*(?:gt;|\#0*62;|\#[xX]0*3[eE];))[^\n]*$"
    r"|^[ \t]*(?:-{2,}[ \t]*(?:Original|Forwarded) [Mm]essage|Begin forwarded message:).*\Z"
    r"|^[^\n<>]{0,200}<[^\s<>@]{1,200}@[^\s<>]{1,200}>[^\n]{0,80}[:：][ \t]*$.*\Z"  # "Bob <bob@example.org> wrote:"
    r"|\[image:[^\]\n]*\]",
    re.DOTALL | re.MULTILINE,
)
_SENDER: Final = (
    "from|to|cc|date|sent|reply-to|von|an|datum|gesendet|de|para|fecha|enviado|à|envoyé|"
    "差出人|宛先|送信日時|日時|发件人|寄件者|收件人|日期|发送时间"
)
_SUBJECT: Final = "subject|betreff|asunto|objet|件名|主题|主旨"
_LABEL: Final = r"[ \t]*\**[ \t]*[:：]"
#: Pasted mail: several header lines, one of them a subject or an address, and everything after them.
_HEADER: Final = rf"(?:{_SENDER}|{_SUBJECT}){_LABEL}"
_MAIL: Final = re.compile(
    rf"^[ \t*]*(?=(?:(?:{_SENDER}){_LABEL}[^\n]*\n[ \t*]*){{0,6}}"
    rf"(?:(?:{_SUBJECT}){_LABEL}|(?:{_SENDER}){_LABEL}[^\n]*@))"
    rf"{_HEADER}[^\n]*\n[ \t*]*{_HEADER}.*\Z",
    re.DOTALL | re.MULTILINE | re.IGNORECASE,
)
#: The beginning of a sentence up to a colon: "My sister says:".
_REPORT: Final = re.compile(r"[^:：]{2,}(?::(?=\s)|：)")
#: The end of a task such as "Translate this:", and the material after it.
_MATERIAL: Final = re.compile(r"(?:^|[.!?。！？\n])(?P<task>[^.!?:：。！？\n]{2,200})(?::(?=\s)|：)", re.MULTILINE)
_FENCE: Final = re.compile(
    r"</?\s*(?:recalled|recall|memory|memories|cuebook|retrieved)[\w:-]*[^>\n]{0,200}>|\[\[?/?(?:recalled|memory|cuebook)\b",
    re.IGNORECASE,
)
#: The end of a sentence: its punctuation and a space, Chinese or Japanese punctuation, or the end of a line.
_END: Final = re.compile(r"[.!?…]+[\"'”’»)\]]*(?=\s)|[。！？]+[」』”]*|\n+")
#: Not an end: a full stop after an initial, an ordinal number or an abbreviation, or before a small letter.
_NO_END: Final = re.compile(rf"(?:^|[\s(])(?:\d{{1,2}}|[^\W\d_]|[A-Z]{CONSONANT}{{1,2}})\.$")
_SPACED: Final = re.compile(r"\s*\S+\s*")  # a word with the spaces around it
_LAST_WORD: Final = re.compile(r"([^\W\d_]+)\.$")
_BULLET: Final = re.compile(r"\s*(?:[-*•–]|\d{1,2}[.)]|#{1,6})?\s*")
#: More than three words in quotation marks are another person's.
_QUOTATION: Final = re.compile(r"[“\"«„](?:[^\s”\"»“]+\s+){3,}[^\s”\"»“]+[”\"»“]|[「『“][^」』”\n]{8,}[」』”]")
#: A quotation of any length, over several lines too.
_QUOTED: Final = re.compile(
    r"“[^“”]{1,2000}”|„[^„“”]{1,2000}[“”]|«[^«»]{1,2000}»|[「『][^「」『』]{1,2000}[」』]"
    r"|(?<!\w)\"(?=\S)(?:[^\"\n]|\n(?!\n)){1,2000}\"(?!\w)"
)
_ANY: Final = re.compile("")
_SEVERAL_SENTENCES: Final = re.compile(r"\n|[.!?…][\"'”’»)\]]*\s|[。！？][^」』]")
_VALUE: Final = re.compile(
    r"(?P<date>\d{4}-\d\d-\d\d|\d{1,2}[./]\d{1,2}[./](?:\d{4}|\d\d)?|\d{1,2}\s?月(?:\s?\d{1,2}\s?[日号])?|\d{1,2}\s?[日号])"
    r"|(?P<time>\d{1,2}[:h.]\d\d\b(?:\s?[ap]\.?m)?|\d{1,2}\s?[ap]\.?m\b|\d{1,2}\s?[点時时](?:半|\d{1,2}分)?|\d{1,2}\s?Uhr)"
    r"|(?P<code>`[^`\n]+`|['‘\"][\w.*/+-]{1,30}['’\"]|(?<![\w.*/+-])[\w.*/+-]*(?:\w_|_\w|\w/\w|\*\*?[/.]|[a-z][A-Z]|\w\.\w{2,4}\b)[\w.*/+-]*)"
    r"|(?P<number>[$€£¥]?\d[\d.,]*\d?%?)",
)
_NAME: Final = re.compile(r"(?<![.!?…:]\s)(?<!^)(?<![\w`'’])[^\W\d_a-zß-ÿ][^\W\d_]{1,}")


def quotes_of(lines: Sequence[Line], *, before: Sequence[Line] = ()) -> list[Item]:
    """Return the quotes in users' posts, in order. `before` are earlier posts whose questions may be answered."""
    items: list[Item] = []
    question = _question(before[-1]) if before else ""
    for line in lines:
        if line.role == "user":
            items += _of_post(line, question)
        question = _question(line) if line.role == "assistant" else ""
    return items


def _of_post(line: Line, question: str) -> list[Item]:
    text = stated(line.text)
    lists = language(detect(text))
    items: list[Item] = []
    previous = ""
    for number, sentence in enumerate(sentences(text, lists)):
        own = _QUOTATION.sub(" ", sentence)
        signs, words = read_signs(own, lists), _count_words(own, lists)
        opening = lists.signs(opening_of(own, lists))
        asks = sentence.endswith(("?", "？")) or _asks(own, signs, lists)
        kept = signs["remember"] or signs["rule"] or (signs["self"] and signs["health"])
        signs["request"] = opening["request"]
        if _tells_story(signs, asks=asks, request=signs["request"] > 0):
            break
        if _is_hypothetical(signs, stated=bool(kept or asks)):
            previous = ""
            continue
        answer = bool(question) and number == 0 and not asks and len(sentence.split()) <= SHORT_REPLY
        signs["answer"] = int(answer)
        words += _count_words(question, lists) if answer else 0
        weight = score(signs, words, lists, sentence) / FULL_SCORE
        if (asks or signs["request"]) and not kept:
            weight = ASKED_WEIGHT
        elif asks:  # it may state or ask for a fact: only the summary has it
            weight = min(weight, LISTED / 2)
        content = f"{sentence} (asked: {question})" if answer else sentence
        topic = lists.topic(own) if lists.spaced else lists.content(own)
        if len(topic) < ALONE and not answer and previous and not _stands_alone(signs):
            if not _has_value(signs):
                continue  # it says nothing alone and adds nothing
            content = f"{previous} {sentence}"
            if items and items[-1].text == previous:
                weight = max(weight, items.pop().weight)
        if words or signs["number"] or answer:
            items.append(_item(line, content, signs, lists, max(0.0, min(1.0, weight))))
        previous = sentence
    return items


def _stands_alone(signs: Counter[str]) -> bool:
    """Return whether a brief sentence names its subject: "I live in Oslo", not "two hours later"."""
    return any(signs[name] for name in ("self", "name", "people", "health"))


def _is_hypothetical(signs: Counter[str], *, stated: bool) -> bool:
    return signs["conditional"] >= HYPOTHETICAL or bool(signs["conditional"] and not stated and not _has_value(signs))


def _has_value(signs: Counter[str]) -> bool:
    """Return whether a sentence has content of its own, however short it is."""
    return any(signs[name] for name in ("date", "number", "name", "health", "update", "rule"))


def weigh(text: str) -> float:
    """Return the weight of a quote by its own words, in [0, 1]."""
    lists = language(detect(text))
    own = _QUOTATION.sub(" ", text)
    return max(0.0, min(1.0, score(read_signs(own, lists), _count_words(own, lists), lists, own) / FULL_SCORE))


@lru_cache(maxsize=1 << 14)  # each pass ranks all quotes
def signs_of(text: str) -> Counter[str]:
    """Return the signs in a quote's own words, without what it quotes of others."""
    return read_signs(_QUOTATION.sub(" ", text), language(detect(text)))


def score(signs: Counter[str], words: int, lists: Language, text: str) -> float:
    """Return the score of a sentence."""
    points = WORD_POINTS * min(words, MOST_WORDS) ** WORD_POWER if words else 0.0
    points += sum(POINTS[name] * count**DAMPED for name, count in signs.items() if name in POINTS)
    points += POINTS["brief"] * (words < ALONE) + POINTS["exclaimed"] * text.rstrip().endswith(("!", "！"))
    points += POINTS["told"] * bool(signs["you"] and not signs["self"])
    return float(points) + (0.0 if lists.spaced else UNSPACED_POINTS)


@lru_cache(maxsize=1 << 14)
def states_rule(text: str) -> bool:
    """Return whether a text states a rule or a preference in its own words."""
    signs = _listed_signs(_QUOTATION.sub(" ", text), language(detect(text)))
    return signs["rule"] + signs["preference"] > 0


def read_signs(sentence: str, lists: Language) -> Counter[str]:
    """Return the signs of a sentence by its word lists, figures and capital letters."""
    signs = _listed_signs(sentence, lists)
    for kind, _ in values_of(sentence):
        signs["number" if kind in {"time", "number"} else "name" if kind == "code" else kind] += 1
    signs["name"] += len(names_of(sentence, lists))
    return signs


def _listed_signs(sentence: str, lists: Language) -> Counter[str]:
    signs = lists.signs(sentence)
    signs["rule"] += lists.signs(opening_of(sentence, lists))["ban"]  # "no calls before ten"
    return signs


def opening_of(sentence: str, lists: Language) -> str:
    """Return the first words of a sentence, as written."""
    if not lists.spaced:
        return sentence[: 2 * OPENING]
    return "".join(match[0] for match in islice(_SPACED.finditer(sentence), OPENING))


def values_of(text: str) -> list[tuple[str, str]]:
    """Return the values of a text with their types: date, time, code, number."""
    return [(match.lastgroup or "", match[0].lower().strip("`'\"‘’ ,.")) for match in _VALUE.finditer(text)]


def names_of(text: str, lists: Language) -> list[str]:
    """Return the capitalized words within a sentence; in German, where every noun has a capital, only pairs."""
    results = [match for match in _NAME.finditer(text) if not lists.kinds(match[0].lower())]
    if lists.code != "de":
        return [match[0] for match in results]
    return [match[0] for one, match in pairwise(results) if match.start() - one.end() == 1]


def sentences(text: str, lists: Language) -> list[str]:
    """Return the sentences of a text verbatim, without leading spaces and bullets."""
    results, start = [], 0
    # A writer who uses no capitals starts every sentence with a small letter.
    goes_on = _goes_on if text.lstrip()[:1].isupper() else lambda *_: False
    for match in _END.finditer(text):
        end = match.end()
        before = text[max(0, match.start() - ABBREVIATION) : match.start() + 1]
        if match[0][0] == "." and (_is_abbreviation(before, lists) or goes_on(text, end)):
            continue
        results.append(text[start:end])
        start = end
    results.append(text[start:])
    plain = ((bullet := _BULLET.match(part)) and part[bullet.end() :].strip() for part in results)
    return [piece for part in plain if part for piece in _pieces(part)]


def _is_abbreviation(text: str, lists: Language) -> bool:
    word = _LAST_WORD.search(text)
    return _NO_END.search(text) is not None or (word is not None and "abbreviation" in lists.kinds(word[1].lower()))


def _goes_on(text: str, end: int) -> bool:
    return text[end : end + ABBREVIATION].lstrip(" ")[:1].islower()


def _pieces(sentence: str) -> Iterator[str]:
    """Yield a sentence, or the pieces of an overlong one, cut at a comma or a space."""
    while len(sentence) > LONGEST:
        cut = max(sentence.rfind(mark, LONGEST // 2, LONGEST) for mark in (", ", "，", "、", " "))
        cut = cut + 1 if cut > 0 else LONGEST
        yield sentence[:cut].strip()
        sentence = sentence[cut:].strip()
    if sentence:
        yield sentence


def stated(text: str) -> str:
    """Return a post's own statements: without code, quoted lines, logs, JSON, mail, recalled memory, or the material
    of a task ("Translate this: …").
    """
    text = text[:READ]
    if _FENCE.search(plain(text)):
        return ""
    return _elide(_without_material(_MAIL.sub("\n", _SKIPPED.sub("\n", text))), _SEVERAL_SENTENCES)


def _without_material(text: str) -> str:
    """Return a text up to the colon after a task such as "Translate this"."""
    for match in _MATERIAL.finditer(text):
        task = match["task"]
        for code in {detect(task), detect(text)}:  # a few words may not show their language
            signs, first = language(code).signs(task), language(code).signs((task.split() or [""])[0])
            if signs["material"] and not signs["remember"] and not first["self"]:
                return text[: match.end()]
    return text


def without_quotations(text: str) -> str:
    """Return a text with an ellipsis for each quotation of more than three words: others' words."""
    return _elide(text, _ANY)


def _elide(text: str, kind: re.Pattern[str]) -> str:
    """Replace the quotations of a kind that are longer than a name or a title of three words."""

    def others(match: re.Match[str]) -> str:
        is_long = len(match[0].split()) > 3 or (match[0][0] in "「『" and len(match[0]) >= 10)
        return "“…”" if is_long and kind.search(match[0]) else match[0]

    return _QUOTED.sub(others, text)


def own_words(text: str) -> str:
    """Return a post's own statements without the quotations in them."""
    return without_quotations(stated(text))


def assertions(text: str) -> list[str]:
    """Return the own sentences of a post that state something as a fact: no questions, hypothetical cases or stories,
    and nothing of a sentence after "she said:".
    """
    text = own_words(text)
    lists = language(detect(text))
    results: list[str] = []
    for sentence in sentences(text, lists):
        signs = read_signs(sentence, lists)
        asks = _asks(sentence, signs, lists)
        if _tells_story(signs, asks=asks, request=lists.signs(opening_of(sentence, lists))["request"] > 0):
            break
        if asks or signs["conditional"]:
            continue
        before = _REPORT.match(sentence)
        results.append(before[0] if before and lists.signs(before[0])["reported"] else sentence)
    return results


def _asks(sentence: str, signs: Counter[str], lists: Language) -> bool:
    """Return whether a sentence is a question, by its mark or its first words."""
    question = lists.signs(opening_of(sentence, lists))["question"] > 0
    return sentence.endswith(("?", "？")) or (question and not signs["self"] and not signs["date"])


def _tells_story(signs: Counter[str], *, asks: bool, request: bool) -> bool:
    """Return whether a story begins, which is the rest of a post."""
    return bool(signs["fiction"] and (asks or request or signs["self"]) and not signs["health"])


def _question(line: Line) -> str:
    """Return the shortened question that ends a post, "" without one."""
    text = stated(line.text)
    last = (sentences(text, language(detect(text))) or [""])[-1]
    if line.role != "assistant" or not last.endswith(("?", "？")):
        return ""
    return last if len(last) <= QUESTION_LENGTH else "…" + last[-QUESTION_LENGTH:].split(" ", 1)[-1]


def _count_words(sentence: str, lists: Language) -> int:
    words = lists.content(sentence)
    return len(words) if lists.spaced else (len(words) + 1) // _CHARACTERS_A_WORD


def _item(line: Line, text: str, signs: Counter[str], lists: Language, weight: float) -> Item:
    category = category_of(signs)
    people = names_of(text, lists) if category == "people" else []
    return Item(
        id=item_id(category, text, "" if line.own else line.speaker),
        category=category,
        text=text,
        sources=(line.id,),
        subject=subject_of(text),
        trust="user" if line.own else "participant",
        confidence=0.5,
        valid_from=line.when,
        name=people[0] if people else "",
        seq=line.seq,
        weight=round(weight, 4),
        speaker=line.speaker,
    )


def category_of(signs: Counter[str]) -> Category:
    """Return the one of AgentOS's categories that a quote's signs indicate."""
    if signs["health"]:
        return "facts"
    if signs["people"] and signs["name"] and not signs["rule"]:
        return "people"
    for sign, category in _CATEGORIES:
        if signs[sign]:
            return category
    return "facts"


_CATEGORIES: Final[tuple[tuple[str, Category], ...]] = (
    ("preference", "preferences"), ("rule", "decisions"), ("decision", "decisions"), ("request", "open_loops"),
    ("question", "open_loops"), ("todo", "todo"),
)  # fmt: skip
