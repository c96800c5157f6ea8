"""How an evaluation reads in a terminal."""

from collections.abc import Iterator, Sequence

from cuebook.app.evaluate import CurrentFacts, Evaluation
from cuebook.app.evaluate.items import Cleanness
from cuebook.app.evaluate.recall import Recall
from cuebook.app.evaluate.survival import Survival
from cuebook.records.counted import counted

#: Columns of a name and of a figure.
NAME, FIGURE = 46, 10
#: Of what should not be there, so many are shown, in so many characters.
SHOWN, QUOTE = 3, 100
_ORIGINS = {
    "file": "the file's own questions",
    "gold": "the gold list's questions",
    "cloze": "clozes: half the words of a user's sentence, without its value",
}
_WHOSE = {
    "gold": "gold facts that hold",
    "user": "values in the user's posts",
    "others": "values in other posts",
}


def report_lines(report: Evaluation) -> Iterator[str]:
    """Give a report line by line."""
    talks = f"{report.conversations} conversations, " if report.conversations > 1 else ""
    posts, compactions = counted(report.posts, "post"), counted(report.compactions, "compaction")
    yield f"{report.title}: {talks}{posts}, {compactions}, no model"
    yield ""
    yield from _recall_lines(report.recall)
    yield ""
    yield from _item_lines(report.items)
    yield ""
    yield from _survival_lines(report.survival)
    if report.current_facts is not None:
        yield ""
        yield from _current_lines(report.current_facts)


def _recall_lines(recall: Recall) -> Iterator[str]:
    if recall.at5 is None:
        yield "evidence recall: nothing to ask, no old post of the user states a value"
        return
    some = f"{recall.questions} of {recall.there_are}" if recall.questions < recall.there_are else recall.questions
    yield f"{'evidence recall':{NAME}}{'R@5':>{FIGURE}}{'R@10':>{FIGURE}}{'1000 tokens':>{FIGURE + 4}}"
    figures = (
        f"{_share(recall.at5):>{FIGURE}}{_share(recall.at10):>{FIGURE}}{_share(recall.within_tokens):>{FIGURE + 4}}"
    )
    yield f"{f'  {some} questions':{NAME}}{figures}"
    yield f"  asked: {_ORIGINS[recall.origin]}"


def _item_lines(items: Cleanness) -> Iterator[str]:
    head = f"of {counted(items.items, 'item')} shown as current"
    yield f"{head:{NAME}}{'':>{FIGURE}}{'share':>{FIGURE}}"
    rows: list[tuple[str, Sequence[str]]] = [
        ("junk: no value, no name, no gold fact", items.junk),
        ("duplicates of an earlier one", items.duplicates),
        ("contradictions: pairs of them", [" / ".join(pair) for pair in items.contradictions]),
    ]
    for name, found in rows:
        share = _share(len(found) / items.items if items.items else None)
        yield f"{'  ' + name:{NAME}}{len(found):>{FIGURE}}{share:>{FIGURE}}"
        yield from (f"    {_quote(text)}" for text in found[:SHOWN])


def _survival_lines(rows: Sequence[Survival]) -> Iterator[str]:
    if not rows:
        yield "fact survival: nothing to tell, no post under a summary states a value"
        return
    heads = ("compactions", "facts", "held", "ended", "found", "lost")
    yield f"{'fact survival':{NAME - 12}}" + "".join(f"{head:>{13 if n == 0 else 8}}" for n, head in enumerate(heads))
    for row in rows:
        figures = (row.facts, row.held, row.ended, row.found, row.lost)
        name = f"{'  ' + _WHOSE[row.whose]:{NAME - 12}}{row.compactions:>13}"
        yield name + "".join(f"{figure:>8,}" for figure in figures)
    yield "  held: in summary or items; ended by what came later; found: by a search only"
    dropped = [text for row in rows for text in row.dropped]
    yield f"  facts lost from a mark to the next, gold facts that were ended among them: {len(dropped)}"
    yield from (f"    {_quote(text)}" for text in dropped[:SHOWN])


def _current_lines(facts: CurrentFacts) -> Iterator[str]:
    yield f"{'gold facts at the end':{NAME}}{'':>{FIGURE}}{'share':>{FIGURE}}"
    shown = _share(facts.shown / facts.current if facts.current else None)
    yield f"{'  that hold, in an item':{NAME}}{f'{facts.shown} of {facts.current}':>{FIGURE}}{shown:>{FIGURE}}"
    yield from (f"    missing: {_quote(text)}" for text in facts.missing[:SHOWN])
    wrong = _share(facts.superseded_shown / facts.superseded if facts.superseded else None)
    count = f"{facts.superseded_shown} of {facts.superseded}"
    yield f"{'  superseded, in an item all the same':{NAME}}{count:>{FIGURE}}{wrong:>{FIGURE}}"
    yield from (f"    wrong: {_quote(text)}" for text in facts.wrong[:SHOWN])


def _share(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.0f} %"


def _quote(text: str) -> str:
    flat = " ".join(text.split())
    return f"“{flat if len(flat) <= QUOTE else flat[: QUOTE - 1] + '…'}”"
