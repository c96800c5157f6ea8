"""LoCoMo's JSON: two people over many sessions, with questions and the turns that answer them."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from cuebook.app.transcripts.transcript import Place, Question, Transcript
from cuebook.engine.core.drafts import Posted

_SESSION = re.compile(r"session_(\d+)")
#: The authors' category of questions that nothing answers.
_ADVERSARIAL = 5
_SECONDS_BETWEEN_UNDATED = 60.0


def is_sample(value: object) -> bool:
    """Whether this is a LoCoMo sample, or its conversation alone."""
    if not isinstance(value, Mapping):
        return False
    talk = value.get("conversation", value)
    return isinstance(talk, Mapping) and any(_SESSION.fullmatch(str(key)) for key in talk)


def read_sample(sample: Mapping[str, Any], place: Place, fallback: str) -> Transcript:
    """Read a sample: who speaks first is the user, ids are `dia_id`, each turn a second after the one before."""
    inside = place.at("conversation") if "conversation" in sample else place
    talk = inside.mapping(sample.get("conversation", sample))
    keys = sorted((key for key in talk if _SESSION.fullmatch(key)), key=lambda key: int(key.rpartition("_")[2]))
    posts: list[Posted] = []
    for key in keys:
        last = posts[-1].created_at or 0.0 if posts else 0.0
        begins = _time(talk.get(f"{key}_date_time"), inside.at(f"{key}_date_time"))
        begins = last + _SECONDS_BETWEEN_UNDATED if begins is None else begins
        for n, turn in enumerate(inside.at(key).sequence(talk[key])):
            here = inside.at(key).at(n)
            posts.append(_post(here.mapping(turn), here, begins + n))
    if not posts:
        inside.refuse("no session holds a turn")
    return Transcript(
        conversation=place.at("sample_id").name(sample.get("sample_id")) or fallback,
        posts=tuple(posts),
        source="LoCoMo",
        user=posts[0].sender,
        questions=_questions(sample, place, {post.id for post in posts}),
    )


def _post(turn: Mapping[str, Any], place: Place, when: float) -> Posted:
    text = place.at("text").text(turn.get("text"), "")
    if caption := place.at("blip_caption").text(turn.get("blip_caption"), ""):
        text += f" [image: {caption}]"
    id_ = place.at("dia_id").text(turn.get("dia_id"))
    speaker = place.at("speaker").text(turn.get("speaker"))
    return Posted(sender=speaker, message=text, id=id_, created_at=when)


def _time(value: object, place: Place) -> float | None:
    """`1:56 pm on 8 May, 2023` as Unix seconds, UTC."""
    text = place.text(value, "")
    if not text:
        return None
    try:
        return datetime.strptime(text.strip(), "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC).timestamp()
    except ValueError:
        place.refuse(f"expected a time like 1:56 pm on 8 May, 2023, got {text!r}")


def _questions(sample: Mapping[str, Any], place: Place, known: set[str]) -> tuple[Question, ...]:
    """Questions that turns of the conversation answer; a few ids are malformed in the original and are mended."""
    found: list[Question] = []
    for n, raw in enumerate(place.at("qa").sequence(sample.get("qa") or [])):
        here = place.at("qa").at(n)
        fields = here.mapping(raw)
        named = here.at("evidence").sequence(fields.get("evidence") or [])
        ids = (f"D{int(a)}:{int(b)}" for text in named for a, b in re.findall(r"D:?(\d+):(\d+)", str(text)))
        evidence = tuple(id_ for id_ in dict.fromkeys(ids) if id_ in known)
        if evidence and fields.get("category") != _ADVERSARIAL:
            text = here.at("question").text(fields.get("question"))
            found.append(Question(text=text, evidence=evidence, category=str(fields.get("category", ""))))
    return tuple(found)
