"""How `cuebook turn show` tells what was heard of a message, and what came of it: sentiment, events, signals, Mind."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cuebook.app import shapes


def heard_lines(told: shapes.Wire) -> Iterator[str]:
    """Say what `metadata.sentiment` tells of a turn; nothing where nothing was heard."""
    sentiment = told.get("sentiment")
    if not isinstance(sentiment, Mapping) or "polarity" not in sentiment:
        return
    yield f"heard: {', '.join(_said(sentiment))}"
    reasons = sentiment.get("reasons") or {}
    for name in sentiment.get("events") or ():
        why = reasons.get(name) or {}
        yield f"event: {name} ({why.get('severity', 'medium')}): {why.get('reason', '')}"
    read = (sentiment.get("signals") or {}).items()
    signals = [f"{name} {value:.2f}" for name, value in read if value and name != "sentiment_high"]
    if signals:
        yield f"signals: {', '.join(signals)}"


def mind_lines(told: shapes.Wire, reflections: Sequence[shapes.Wire]) -> Iterator[str]:
    """Say the state of mind a turn was answered in, and what came of reflecting on it."""
    if mind := told.get("mind"):
        yield f"mind: mood {mind['mood']}, user's skill {mind['userSkill']}, task {mind['taskComplexity']}"
    for made in reflections:
        if judged := made.get("sentiment"):
            yield f"heard anew: {', '.join(_said(judged))}"
            yield from (f"event: {name}" for name in judged["events"])
        for run in made["runs"]:
            why = f"; {run['reason']}" if run["reason"] else ""
            came = ", ".join(changed(run["changes"])) or run["outcome"]
            yield f"reflected: {run['metaprompt'] or 'by hand'} ({run['trigger']}) by {run['by']}: {came}{why}"


def changed(changes: Mapping[str, Any]) -> Iterator[str]:
    """Say what moved, of long texts only that they did."""
    for name, (before, after) in changes.items():
        if name == "strategy" or name.startswith("imprint."):
            yield f"{name} {'gone' if after in (None, '') else 'new'}"
        else:
            yield f"{name} {before} → {after}"


def _said(sentiment: Mapping[str, Any]) -> Iterator[str]:
    method = sentiment.get("method") or "nothing"
    if sentiment["polarity"] == "unknown":
        yield f"{method} cannot read how this sounds"
    else:
        score, intensity = sentiment["score"], sentiment["intensity"]
        yield f"{sentiment['polarity']}, score {score:.2f}, intensity {intensity:.2f} by {method}"
    if sentiment.get("task"):
        yield f"about {sentiment['task']}"
    if sentiment.get("corrections"):
        yield f"{sentiment['corrections']} correction{'s' if sentiment['corrections'] > 1 else ''}"
    in_a_row = sentiment.get("counters") or {}
    for kind, called in (("frustration", "negative"), ("satisfaction", "positive"), ("neutral", "neutral")):
        if in_a_row.get(kind, 0) > 1:
            yield f"{in_a_row[kind]} {called} in a row"
