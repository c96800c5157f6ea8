"""Detect the format of a transcript file from its content and parse it. Errors name the position."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cuebook.app.files import decode, load_yaml, read_bytes
from cuebook.app.transcripts.posts import id_of, post_of, read_messages, read_posts
from cuebook.app.transcripts.transcript import FilePlace, Transcript, kind_of
from cuebook.engine.core.drafts import Posted
from cuebook.errors import InvalidInput
from cuebook.memory.evidence import Question
from cuebook.records.expression import nests_deeper
from cuebook.records.portable import conversation_from_dict
from cuebook.wire.event_stream import DEPTH

# ---- LoCoMo and REALTALK --------------------------------------------------------------------------------------------


_SESSION = re.compile(r"session_(\d+)")
#: The kinds of questions by category. LoCoMo's category 5 has no answer, but its "evidence" is about somebody else.
_CATEGORIES: Mapping[str, tuple[str, ...]] = {
    "LoCoMo": ("multi-hop", "temporal", "open-domain", "single-hop"),
    "REALTALK": ("multi-hop", "temporal", "commonsense"),
}
_SECONDS_BETWEEN_UNDATED = 60.0
_TIMES = ("%I:%M %p on %d %B, %Y", "%d.%m.%Y, %H:%M:%S")


def is_sample(value: object) -> bool:
    """Return whether a value is a LoCoMo sample, only its conversation, or a chat of REALTALK."""
    if not isinstance(value, Mapping):
        return False
    talk = value.get("conversation", value)
    return isinstance(talk, Mapping) and any(_SESSION.fullmatch(str(key)) for key in talk)


def read_sample(sample: Mapping[str, Any], place: FilePlace, fallback: str) -> Transcript:
    """Parse a sample: the first speaker is the user, ids are `dia_id`, turns are one second apart."""
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
        inside.refuse("no session contains a turn")
    source = "REALTALK" if any("clean_text" in turn for turn in talk[keys[0]]) else "LoCoMo"
    return Transcript(
        conversation=place.at("sample_id").name(sample.get("sample_id")) or fallback,
        posts=tuple(posts),
        source=source,
        user=posts[0].sender,
        questions=_questions(sample, place, {post.id for post in posts}, _CATEGORIES[source]),
    )


def _post(turn: Mapping[str, Any], place: FilePlace, when: float) -> Posted:
    name = "clean_text" if "clean_text" in turn else "text"
    text = place.at(name).text(turn.get(name), "")
    if caption := place.at("blip_caption").text(turn.get("blip_caption"), ""):
        text += f" [image: {caption}]"
    id_ = place.at("dia_id").text(turn.get("dia_id"))
    speaker = place.at("speaker").text(turn.get("speaker"))
    return Posted(sender=speaker, message=text, id=id_, created_at=when)


def _time(value: object, place: FilePlace) -> float | None:
    """Parse a time such as `1:56 pm on 8 May, 2023` or `08.05.2023, 13:56:00` (UTC) as Unix seconds."""
    text = place.text(value, "")
    if not text:
        return None
    form = _TIMES["." in text]
    try:
        return datetime.strptime(text.strip(), form).replace(tzinfo=UTC).timestamp()
    except ValueError:
        place.refuse(f"expected a time like 1:56 pm on 8 May, 2023, got {text!r}")


def _questions(
    sample: Mapping[str, Any], place: FilePlace, known: set[str | None], kinds: Sequence[str]
) -> tuple[Question, ...]:
    """Return the questions that the conversation answers; repair a few malformed ids of the original."""
    questions: list[Question] = []
    for n, raw in enumerate(place.at("qa").sequence(sample.get("qa") or [])):
        here = place.at("qa").at(n)
        fields = here.mapping(raw)
        named = here.at("evidence").sequence(fields.get("evidence") or [])
        ids = (f"D{int(a)}:{int(b)}" for text in named for a, b in re.findall(r"D:?(\d+):(\d+)", str(text)))
        evidence = tuple(id_ for id_ in dict.fromkeys(ids) if id_ in known)
        category = fields.get("category", 1)
        kind = dict(enumerate(kinds, 1)).get(category) if isinstance(category, int) else None
        if evidence and kind:
            text = here.at("question").text(fields.get("question"))
            questions.append(Question(text=text, evidence=evidence, answer=str(fields.get("answer", "")), kind=kind))
    return tuple(questions)


FORMAT = "cuebook.transcript/1"
#: Most bytes of a document. Parsed, it takes about eight times as much memory.
MOST_BYTES = 256 << 20
TOO_LARGE = "Split it into smaller files."
_KNOWN = "OpenAI messages (JSON or JSONL), a Cuebook export, posts, a TaskWeaver conversation, or LoCoMo"
_YAML = (".yaml", ".yml")


def read_transcripts(source: Path | str, *, name: str = "") -> list[Transcript]:
    """Parse every conversation of a file (a Path) or of a text (a str); `name` is the text's file name in errors.

    A conversation without an id gets the file's name. Raises InvalidInput naming file and position.
    """
    name = name or (source.name if isinstance(source, Path) else "the text")
    if isinstance(source, Path):
        text = decode(read_bytes(source, name, most=MOST_BYTES, advice=TOO_LARGE), name)
    else:
        text = source.removeprefix("\ufeff")
    place = FilePlace(name)
    document, places = parse_document(text, place)
    return transcripts_of(document, places, place, Path(name).stem or "import")


def transcripts_of(document: Any, places: list[FilePlace], place: FilePlace, stem: str) -> list[Transcript]:
    """Return every conversation of a parsed document. `places` are the positions of the lines of JSONL."""
    if not isinstance(document, list):
        return _one(document, place, stem)
    places = places or _places(document, place)
    if _is_message(document[0]):
        return [_openai({"messages": document}, place, stem, places)]
    if isinstance(document[0], Mapping) and "sendFrom" in document[0]:
        return [_posts({"posts": document}, place, stem, places)]
    every = zip(document, places, strict=True)
    return [each for n, (value, here) in enumerate(every, 1) for each in _one(value, here, f"{stem}-{n}")]


# ---- the syntax -----------------------------------------------------------------------------------------------------


def parse_document(
    text: str, place: FilePlace, skip: Callable[[InvalidInput], None] | None = None
) -> tuple[Any, list[FilePlace]]:
    """Parse JSON, YAML or JSONL; of JSONL return the objects of its lines, with their positions.

    Raises InvalidInput. With `skip`, it is called with the error of each invalid line instead.
    """
    if not text.strip():
        place.refuse("empty")
    if place.file.lower().endswith(_YAML):
        return load_yaml(text, place.file), []
    try:
        return _json(text), []
    except (ValueError, RecursionError) as error:
        first, _, rest = text.lstrip().partition("\n")
        if _is_object(first) or (skip is not None and _is_object(rest.partition("\n")[0])):
            return _json_lines(text, place, skip)
        if not text.lstrip().startswith(("{", "[")):
            place.refuse(f"not JSON ({error}). Supported formats: {_KNOWN}")
        place.refuse(f"invalid JSON ({error})")


def _json(text: str) -> Any:
    if nests_deeper(text.encode("utf-8", "surrogatepass"), DEPTH):
        msg = f"nested deeper than {DEPTH} levels"
        raise ValueError(msg)
    return json.loads(text, parse_constant=_no_number)


def _no_number(name: str) -> None:
    msg = f"{name} is not JSON"
    raise ValueError(msg)


def _is_object(line: str) -> bool:
    try:
        return isinstance(_json(line), dict)
    except (ValueError, RecursionError):
        return False


def _json_lines(
    text: str, place: FilePlace, skip: Callable[[InvalidInput], None] | None
) -> tuple[list[Mapping[str, Any]], list[FilePlace]]:
    values: list[Mapping[str, Any]] = []
    places: list[FilePlace] = []
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            here = FilePlace(place.file, f"line {number}")
            try:
                values.append(here.mapping(_line(line, here)))
            except InvalidInput as error:
                if skip is None:
                    raise
                skip(error)
            else:
                places.append(here)
    return values, places


def _line(line: str, place: FilePlace) -> Any:
    try:
        return _json(line)
    except (ValueError, RecursionError) as error:
        place.refuse(f"invalid JSON ({error})")


# ---- the form -------------------------------------------------------------------------------------------------------


def _is_message(value: object) -> bool:
    return isinstance(value, Mapping) and "role" in value and "sendFrom" not in value


def _one(value: object, place: FilePlace, stem: str) -> list[Transcript]:
    if not isinstance(value, Mapping):
        place.refuse(f"expected an object or a list, got {kind_of(value)}. Supported formats: {_KNOWN}")
    if is_sample(value):
        return [read_sample(value, place, stem)]
    if isinstance(value.get("messages"), list):
        return [_openai(value, place, stem)]
    if isinstance(value.get("posts"), list):
        return [_posts(value, place, stem)]
    if isinstance(value.get("rounds"), list):
        return [_taskweaver(value, place, stem)]
    if not _is_message(value):
        keys = ", ".join(map(str, list(value)[:6])) or "nothing"
        place.refuse(f"unknown format (keys: {keys}). Supported formats: {_KNOWN}")
    return [_openai({"messages": [value]}, place, stem, [place.at(0)])]


def _places(values: list[Any], place: FilePlace) -> list[FilePlace]:
    """Return the positions of a list's elements. Raises InvalidInput for an empty list."""
    if not values:
        place.refuse("empty list")
    return [place.at(n) for n in range(len(values))]


def _openai(value: Mapping[str, Any], place: FilePlace, stem: str, places: Sequence[FilePlace] = ()) -> Transcript:
    """Parse chat messages; `places` are their positions if they are not a field of `value`."""
    values = value["messages"]
    posts = tuple(read_messages(values, places or _places(values, place.at("messages"))))
    return Transcript(
        conversation=_named(value, place, "conversationId", "conversation_id", "id") or stem,
        posts=posts,
        source="OpenAI messages",
        user=_named(value, place, "userId", "user"),
        persona=_named(value, place, "personaId", "persona"),
        title=_named(value, place, "title") or "",
        questions=_asked(value, place, set(map(id_of, posts))),
    )


def _asked(value: Mapping[str, Any], place: FilePlace, known: set[str]) -> tuple[Question, ...]:
    """Parse the `questions` of a transcript: each with `question`, `evidence` and perhaps `outdated` and `kind`."""
    questions: list[Question] = []
    for n, raw in enumerate(place.at("questions").sequence(value.get("questions") or [])):
        here = place.at("questions").at(n)
        fields = here.mapping(raw)
        posts: dict[str, tuple[str, ...]] = {}
        for key in ("evidence", "outdated"):
            posts[key] = tuple(map(str, here.at(key).sequence(fields.get(key) or [])))
            if missing := [each for each in posts[key] if each not in known]:
                here.at(key).refuse(f"unknown post {missing[0]!r}. Use the ids of this file's posts.")
        text, kind = here.at("question").text(fields.get("question")), here.at("kind").text(fields.get("kind"), "")
        questions.append(Question(text=text, kind=kind, answer=str(fields.get("answer", "")), **posts))
    return tuple(questions)


def _posts(value: Mapping[str, Any], place: FilePlace, stem: str, places: Sequence[FilePlace] = ()) -> Transcript:
    """Parse our export, the demo's format, or the body of `POST …/posts`."""
    shape = value.get("format", FORMAT)
    if shape != FORMAT:
        place.at("format").refuse(f"unknown format {shape!r}. This version reads {FORMAT}. Upgrade Cuebook.")
    values = value["posts"]
    places = places or _places(values, place.at("posts"))
    posts = tuple(read_posts(values, places))
    about = place.at("conversation").mapping(value.get("conversation") or {})
    here = place.at("conversation") if about else place
    about = about or value
    metadata = here.at("metadata").mapping(about.get("metadata") or {})
    return Transcript(
        conversation=_named(about, here, "conversationId", "id") or stem,
        posts=posts,
        source="a Cuebook export" if "format" in value else "posts",
        user=_named(about, here, "userId", "user"),
        persona=_named(about, here, "personaId", "persona"),
        title=_named(about, here, "title") or "",
        time_zone=_named(about, here, "timeZone") or _named(metadata, here.at("metadata"), "timeZone"),
        questions=_asked(value, place, set(map(id_of, posts))),
        parents=_parents(values, [id_of(post) for post in posts], places),
        head=_named(about, here, "head"),
    )


def _parents(values: list[Mapping[str, Any]], ids: list[str], places: Sequence[FilePlace]) -> dict[str, str | None]:
    """Return the parents of a tree; empty if each post follows the previous one."""
    previous = [None, *ids[:-1]]
    parents: dict[str, str | None] = {}
    for value, id_, before, place in zip(values, ids, previous, places, strict=True):
        parent = place.at("parent").name(value["parent"]) if "parent" in value else before
        if parent is not None and parent not in parents and parents:
            place.at("parent").refuse(f"unknown post {parent!r}. A parent must come before this post.")
        parents[id_] = parent
    return parents if any(parents[id_] != before for id_, before in zip(ids, previous, strict=True)) else {}


def _taskweaver(value: Mapping[str, Any], place: FilePlace, stem: str) -> Transcript:
    try:
        portable_conversation = conversation_from_dict(value, where=place.path)
    except InvalidInput as error:
        msg = f"{place.file}: {error}"
        raise InvalidInput(msg, where=error.where) from error
    rounds = place.at("rounds")
    posteds = [
        post_of(post, rounds.at(n).at("post_list").at(m))
        for n, round_ in enumerate(portable_conversation.rounds)
        for m, post in enumerate(round_.posts)
    ]
    if not posteds:
        rounds.refuse("no round contains a post")
    return Transcript(
        conversation=portable_conversation.conversation.id or stem,
        posts=tuple(posteds),
        source="TaskWeaver",
        user=portable_conversation.conversation.user,
        persona=portable_conversation.conversation.persona,
    )


def _named(value: Mapping[str, Any], place: FilePlace, *keys: str) -> str | None:
    for key in keys:
        if value.get(key) is not None:
            return place.at(key).name(value[key])
    return None
