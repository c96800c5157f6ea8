"""Explain a turn line by line: sentiment, signals, mood, prompt selection, window contents and feedback."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cuebook.records.answer import Wire
from cuebook.records.expression import shortened
from cuebook.records.turn import RECALLED, SHADOW

#: Maximum length of a shown comment, in characters.
COMMENT = 200


def told_of(shown: Wire) -> Iterator[str]:
    """Yield the lines that explain a turn, from the result of `cue.turns.show`."""
    told = shown["metadata"] or {}
    if SHADOW in told:
        yield "shadow mode: this prompt was not sent; the client's request was forwarded unchanged"
    yield from context_lines(told)
    yield from heard_lines(told)
    yield from mind_lines(told, shown["reflections"])
    yield from why_lines(told)
    yield from recalled_lines(told)
    yield from observed_lines(shown["observation"])
    for each in shown["steps"]:
        if each.get("error"):
            yield f"step {each['step']} failed: {each['error']}"


def window_lines(window: Wire) -> Iterator[str]:
    """Yield a line for each block of a prompt, and for everything left out with the reason; texts are cut short."""
    yield f"prompt: {window['tokens']:,} of {window['budget']:,} tokens"
    for block in window["blocks"]:
        source = f" {block['source']}" if block["source"] else ""
        what = f"{kind_in_words(block)}{source}"
        yield f"- {what}, {block['tokens']:,} tokens: {shortened(block['text'], COMMENT)}"
    for each in window["dropped"]:
        what = f"{each['kind']} {source_in_words(each)}"
        yield f"left out: {what}, {each.get('tokens') or 0:,} tokens: {each['reason']}"


def kind_in_words(block: Wire) -> str:
    """Return a block's kind, and whether it was shortened."""
    form = " (cut)" if block.get("cut") else " (short form)" if block.get("compressed") else ""
    return f"{block['kind']}{form}"


def source_in_words(dropped: Mapping[str, Any]) -> str:
    """Return the source of left-out content, or its posts."""
    return str(dropped.get("source") or posts_in_words(dropped.get("from"), dropped.get("to")))


def posts_in_words(first: int | None, last: int | None) -> str:
    """Return a range of posts."""
    return f"posts {first}–{last}" if first != last else f"post {first}"


#: Sources of a context window, as a person reads them.
_SOURCES = {
    "setting": "set by budget.context",
    "error": "learned from an error of the upstream",
    "upstream": "from the upstream's list of models",
    "table": "from Cuebook's table of models",
    "default": "the default for unknown models",
}


def context_lines(told: Wire) -> Iterator[str]:
    """Yield the context window of the model that a turn was sent to; nothing if there is none."""
    if context := (told.get("window") or {}).get("context"):
        source = _SOURCES.get(context["source"], context["source"])
        model = context["model"] or "the model"
        yield f"context window of {model}: {context['tokens']:,} tokens ({source}), {context['reply']:,} for the answer"
        if ratio := context.get("ratio"):
            yield f"the provider counts {ratio:.2f} times the tokens that Cuebook counts, by its reported usage"
        if told["window"]["tokens"] > told["window"]["budget"]:
            yield "sent whole, because the estimate exceeds the budget by less than its error"


def recalled_lines(told: Wire) -> Iterator[str]:
    """Yield why each memory and earlier post was recalled; nothing if there is none."""
    for hit in (told.get(RECALLED) or {}).get("hits", ()):
        yield f"recalled: {hit['memoryId']}, {hit['why'] or hit['scope']}"


def heard_lines(told: Wire) -> Iterator[str]:
    """Yield the sentiment, events and signals of a turn from `metadata.sentiment`; nothing if there is none."""
    sentiment = told.get("sentiment")
    if not isinstance(sentiment, Mapping) or "polarity" not in sentiment:
        return
    yield f"sentiment: {', '.join(_said(sentiment))}"
    reasons = sentiment.get("reasons") or {}
    for name in sentiment.get("events") or ():
        why = reasons.get(name) or {}
        yield f"event: {name} ({why.get('severity', 'medium')}): {why.get('reason', '')}"
    read = (sentiment.get("signals") or {}).items()
    neutral = {"user_pleased": 0.5, "user_frustrated": 0.5, "sentiment_high": 1.0}  # another name of user_pleased
    signals = [f"{name} {value:.2f}" for name, value in read if value > neutral.get(name, 0.0)]
    if signals:
        yield f"signals: {', '.join(signals)}"


def mind_lines(told: Wire, reflections: Sequence[Wire]) -> Iterator[str]:
    """Yield the mood state that a turn was answered in, and the results of its reflections."""
    if mind := told.get("mind"):
        yield f"mood: {mind['mood']}, user's skill {mind['userSkill']}, task {mind['taskComplexity']}"
    for made in reflections:
        if judged := made.get("sentiment"):
            yield f"sentiment by reflection: {', '.join(_said(judged))}"
            yield from (f"event: {name}" for name in judged["events"])
        for run in made["runs"]:
            why = f"; {run['reason']}" if run["reason"] else ""
            came = ", ".join(changed(run["changes"])) or run["outcome"]
            ran = f"reflection: {run['metaprompt']} ({run['trigger']})" if run["metaprompt"] else run["trigger"]
            yield f"{ran} by {run['by']}: {came}{why}"


def changed(changes: Mapping[str, Any]) -> Iterator[str]:
    """Yield the changed values; of long texts only the fact that they changed."""
    for name, (before, after) in changes.items():
        if name == "strategy" or name.startswith("imprint."):
            yield f"{name} {'gone' if after in (None, '') else 'new'}"
        else:
            yield f"{name} {before} → {after}"


def _said(sentiment: Mapping[str, Any]) -> Iterator[str]:
    method = sentiment.get("method") or "nothing"
    if sentiment["polarity"] == "unknown":
        yield f"unknown by {method}"
    else:
        score, intensity = sentiment["score"], sentiment["intensity"]
        yield f"{sentiment['polarity']}, score {score:.2f}, intensity {intensity:.2f} by {method}"
    if sentiment.get("task"):
        yield f"task {sentiment['task']}"
    if sentiment.get("corrections"):
        yield f"{sentiment['corrections']} correction{'s' if sentiment['corrections'] > 1 else ''}"
    in_a_row = sentiment.get("counters") or {}
    for kind, called in (("frustration", "negative"), ("satisfaction", "positive"), ("neutral", "neutral")):
        if in_a_row.get(kind, 0) > 1:
            yield f"{in_a_row[kind]} {called} in a row"


def why_lines(told: Wire) -> Iterator[str]:
    """Yield why these prompts were used: the preset of the add-ons, and how each variant was selected."""
    if told.get("personaSilent"):
        yield "persona and presets: not used, because the request names no persona (persona.speaks)"
    profile = told.get("promptProfile") or {}
    if profile.get("addonPromptKeys"):
        addons = ", ".join(profile["addonPromptKeys"])
        yield f"add-ons: {addons}, by preset {profile['presetId']} ({profile['reason']})"
    if selection := told.get("experienceSelection"):
        yield f"experiences: {_experiences(selection, told.get('experiences') or [])}"
    for slug, each in (told.get("promptVariants") or {}).items():
        version = f":{each['version']}" if "version" in each else ""
        how = " ".join(filter(None, (each.get("strategy"), "exploring" if each.get("explored") else "")))
        trial = f", on trial {each['trial']}" if each.get("trial") else ""
        chance = f"probability {each.get('propensity', 1.0):.3f}"
        scores = f", weight {each['edgeWeight']:.2f}, fit {each['contextFit']:.2f}" if "edgeWeight" in each else ""
        yield f"selected: {slug}@{each['branch']}{version}, {how + ', ' if how else ''}{chance}{scores}{trial}"


def _experiences(selection: Wire, stood: list[str]) -> str:
    """Return the selected experiences with their scores and the method; mark those that did not fit the window."""
    named = [
        f"{name} ({score:.2f}{'' if name in stood else ', did not fit'})" for name, score in selection["chosen"].items()
    ]
    instead = f"; not by the model: {selection['instead']}" if selection.get("instead") else ""
    return f"{', '.join(named) or 'none'} of {selection['offered']:,} offered, by {selection['by']}{instead}"


def observed_lines(said: Wire) -> Iterator[str]:
    """Yield the feedback on a turn, explicit or from the user's next message, and the prompts that learned from it.

    Without feedback, yield the reason.
    """
    if said["by"] is None:
        yield f"feedback: none recorded; {said['reason']}"
        return
    source = "given" if said["by"] == "feedback" else f"from the next message (turn {said['nextTurn']})"
    parts = [
        f"sentiment {said['sentiment']:.2f}" if said["sentiment"] is not None else "",
        f"corrections {said['corrections']}" if said["corrections"] is not None else "",
        f"outcome {said['outcome']}",
    ]
    why = f" ({'; '.join(said['reasons'])})" if said["reasons"] else ""
    yield f"feedback: {said['score']:.3f} {source}: {', '.join(filter(None, parts))}{why}"
    if said["comment"]:
        yield f"comment: {shortened(said['comment'], COMMENT)}"
    if said["pending"]:
        yield "learning: pending"
    if not said["pending"] and not said["taught"]:
        yield "learned by: no prompt; none had another variant or version"
    for each in said["taught"]:
        share = "" if each["counted"] else ", stored but not counted: over the share of one user"
        yield f"learned by: {each['promptId']}@{each['branch']}:{each['version']}{share}"
