"""How the demo's report reads in a terminal."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from cuebook.app.demo import ReplayReport
from cuebook.app.gold import Asked

#: Questions shown with their answers.
SHOWN = 8
#: Characters of a quoted post.
QUOTE = 110


def report_lines(report: ReplayReport) -> Iterator[str]:
    """Give a report line by line."""
    yield f"{report.title}: {report.posts} posts over {report.days:.0f} days, turn by turn, no model, no network"
    yield ""
    yield from _cost_lines(report)
    yield ""
    yield from _memory_lines(report)
    if report.asked:
        yield ""
        yield "asked months later, answered from memory with the post it was said in"
        yield from _answers(report.asked)


def _cost_lines(report: ReplayReport) -> Iterator[str]:
    ours, whole = report.ours, report.everything
    yield f"{'what the prompts cost':34}{'Cuebook':>14}{'everything':>14}"
    yield _row(f"  tokens in {ours.calls} prompts", ours.tokens, whole.tokens)
    yield _row("  tokens in the last one", ours.last_tokens, whole.last_tokens)
    yield _row(f"  simulated cost ({report.rule})", round(ours.cost), round(whole.cost))
    yield f"{'  read from the cache':34}{_percent(ours.read_share):>14}{_percent(whole.read_share):>14}"
    if report.rendered:
        yield f"  rendered again from what is kept: {report.identical} of {report.rendered} identical, byte for byte"


def _row(name: str, ours: int, whole: int) -> str:
    share = f"  {_percent(ours / whole)}" if whole else ""
    return f"{name:34}{ours:>14,}{whole:>14,}{share:>8}"


def _memory_lines(report: ReplayReport) -> Iterator[str]:
    summary = report.summary
    yield "what memory holds"
    if summary is not None:
        day = datetime.fromtimestamp(summary.upto_at, UTC).date().isoformat()
        yield f"  summary, version {summary.version}: {summary.tokens} tokens, up to {day}"
    yield f"  {len(report.items)} items that hold, each with its source posts; {report.ended} ended by what came later"
    kept = report.survival
    if kept is not None:
        share = _percent(kept.held / kept.current)
        yield f"  gold facts that hold: {kept.held} of {kept.current} in items ({share})"
        yield f"  of them in the summary that stands in every prompt: {kept.in_summary}"
        yield f"  superseded facts shown as current: {kept.shown} of {kept.superseded}"
    if report.asked:
        found = sum(each.rank > 0 for each in report.asked)
        yield f"  questions: {found} of {len(report.asked)} find their source among the first 10 hits"
    if report.evidence:
        share = _percent(report.evidence["recallAt10"])
        count = report.evidence["questions"]
        yield f"  questions of the file: {count:.0f}; {share} of their evidence among the first 10 hits"


def _answers(asked: Sequence[Asked]) -> Iterator[str]:
    step = max(1, len(asked) // SHOWN)
    for each in asked[::step][:SHOWN]:
        if each.rank:
            yield f"  {each.question}"
            yield f"    {each.answer}  ({each.sources[0]}, hit {each.rank}: “{_quote(each.found)}”)"
        else:
            yield f"  {each.question}"
            yield f"    not found (it is: {each.answer})"


def _quote(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= QUOTE else flat[: QUOTE - 1] + "…"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
