"""Read public test sets of memory from a user's files: detect the format, and return conversations with questions.

Formats (the sets are not part of Cuebook): LoCoMo, REALTALK, LoCoMo-Plus, MemoryCode, BEAM, PrecisionMemBench,
VehicleMemBench, BFCL memory, and any transcript with `questions`. Where a set names its evidence only by words, the
posts that contain them are found here.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from cuebook.app.evaluate.memory_code import read_dialogues
from cuebook.app.files import decode, read_bytes
from cuebook.app.replay import UNDATED
from cuebook.app.transcripts.sniff import read_transcripts
from cuebook.app.transcripts.transcript import FilePlace, Transcript
from cuebook.engine.core.drafts import Posted
from cuebook.errors import InvalidInput
from cuebook.memory.evidence import Question
from cuebook.memory.tokenizer import words

#: Formats that can be evaluated, as named in errors.
FORMATS = (
    "LoCoMo, REALTALK, LoCoMo-Plus (with a LoCoMo file), MemoryCode, BEAM, PrecisionMemBench, VehicleMemBench, "
    "BFCL memory, or a transcript with `questions`"
)
DAY_S = 86_400.0
#: What a file in another form than expected raises.
_MALFORMED = (AttributeError, IndexError, KeyError, TypeError, ValueError, InvalidInput)
_GAP = re.compile(r"(\d+|an?|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve) (week|month|year)")
_NUMBERS = "zero one two three four five six seven eight nine ten eleven twelve".split()
_DAYS = {"week": 7, "month": 30, "year": 365}
_PLAN = re.compile(r"\s*->->\s*[\d,. ]*\s*$")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_LINE = re.compile(r"\[([^\]]+)\]\s*([^:]{1,60}):\s*(.*)")


class QuestionSet(Struct, frozen=True, kw_only=True):
    """A test set: conversations with questions and the posts that answer them."""

    name: str
    form: str
    transcripts: tuple[Transcript, ...]


def read_sets(paths: Sequence[Path]) -> list[QuestionSet]:
    """Read the test sets in files and folders. Raises InvalidInput naming the file and the problem."""
    sets: list[QuestionSet] = []
    for path in sorted((each.resolve() for each in paths), key=_has_cues):  # sets are named after their folders
        try:
            sets += _read(path, [each for each in sets if each.form == "LoCoMo"])
        except _MALFORMED as error:
            if isinstance(error, InvalidInput):
                raise
            FilePlace(path.name).refuse(f"not the form of its test set ({type(error).__name__}: {error})")
    for each in sets:
        if not any(transcript.questions for transcript in each.transcripts):
            FilePlace(each.name).refuse(f"no questions. Supported test sets: {FORMATS}.")
    return sets


def _read(path: Path, talks: Sequence[QuestionSet]) -> Sequence[QuestionSet]:
    if path.is_dir():
        return _read_folder(path)
    document = _document(path)
    if not _is_plus(document):
        return [_read_file(path, document)]
    if not talks:
        FilePlace(path.name).refuse("LoCoMo-Plus has cues, but no conversations. Pass a LoCoMo file too.")
    return [_plus(FilePlace(path.name), document, talks[0].transcripts)]


def _has_cues(path: Path) -> bool:
    """Return whether a file needs the conversations of another one, which is read before."""
    return not path.is_dir() and _is_plus(_document(path))


def is_set(path: Path) -> bool:
    """Return whether a path is a test set that is not a transcript too."""
    if path.is_dir():
        return True
    try:
        document = _document(path)
    except InvalidInput:
        return False
    return _is_plus(document) or _is_chat(document) or _is_selection(document)


def _document(path: Path) -> Any:
    """Return the JSON document of a file, None if it is not one: JSONL and YAML are left to the transcripts."""
    text = decode(read_bytes(path, path.name), path.name)
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _json(path: Path) -> Any:
    document = _document(path)
    if isinstance(document, str):
        FilePlace(path.name).refuse("not JSON")
    return document


def _is_plus(document: Any) -> bool:
    return isinstance(document, list) and _has(document[:1], "cue_dialogue")


def _is_chat(document: Any) -> bool:
    return isinstance(document, list) and _has(document[:1], "turns")


def _is_selection(document: Any) -> bool:
    return isinstance(document, Mapping) and {"instructions", "dialogues"} <= document.keys()


def _has(values: Iterable[Any], key: str) -> bool:
    return any(isinstance(each, Mapping) and key in each for each in values)


def _read_file(path: Path, document: Any) -> QuestionSet:
    place = FilePlace(path.name)
    if _is_selection(document):
        return _set(path.stem, "MemoryCode", read_dialogues(place, document["dialogues"], document["instructions"]))
    if _is_chat(document):
        return _set(path.parent.name, "BEAM", [_beam(path)])
    if isinstance(document, list) and _has(document[:1], "traj"):
        place.refuse("tau-bench logs have no questions about memory. Use them with `cuebook conversation import`.")
    try:
        transcripts = read_transcripts(path)
    except InvalidInput as error:
        reason, unsupported, _ = str(error).partition("Supported formats: ")
        if not unsupported:
            raise
        msg = f"{reason}Supported test sets: {FORMATS}."
        raise InvalidInput(msg, where=path.name) from error
    return _set(path.stem, transcripts[0].source, transcripts)


def _read_folder(folder: Path) -> list[QuestionSet]:
    """Read the test sets of a folder; that of a repository may contain its data deeper."""
    readers: Sequence[tuple[str, Callable[[Path], Iterable[QuestionSet]]]] = (
        ("chat.json", _beams),
        ("dialogue_*.json", _memory_code),
        ("qa_*.json", _vehicles),
        ("BFCL_v*_memory.json", _bfcl),
        ("retrieval.cases.json", _precision),
    )
    for pattern, read in readers:
        if found := sorted(each for each in folder.rglob(pattern) if each.parent.name != "possible_answer"):
            return list(read(folder if read is _beams else found[0].parent))
    sets: dict[str, list[Transcript]] = {}
    for path in sorted(folder.glob("*.json")):
        one = _read_file(path, _document(path))
        sets.setdefault(one.form, []).extend(one.transcripts)
    if not sets:
        FilePlace(folder.name).refuse(f"no test set in this folder. Supported test sets: {FORMATS}.")
    return [_set(folder.name, form, transcripts) for form, transcripts in sets.items()]


def _set(name: str, form: str, transcripts: Iterable[Transcript]) -> QuestionSet:
    """Return a set whose conversations have different names."""
    unique = {each.conversation if n == 1 else f"{each.conversation}#{n}": each for n, each in _numbered(transcripts)}
    named = tuple(replace(each, conversation=name) for name, each in unique.items())
    return QuestionSet(name=name, form=form, transcripts=named)


def _numbered(transcripts: Iterable[Transcript]) -> Iterator[tuple[int, Transcript]]:
    counts: dict[str, int] = {}
    for each in transcripts:
        counts[each.conversation] = counts.get(each.conversation, 0) + 1
        yield counts[each.conversation], each


# ---- BEAM -----------------------------------------------------------------------------------------------------------


def _beams(folder: Path) -> Iterator[QuestionSet]:
    sizes: dict[str, list[Path]] = {}
    for path in sorted(folder.rglob("chat.json")):
        sizes.setdefault(path.parent.parent.name, []).append(path)
    for size, paths in sizes.items():
        numbered = sorted(paths, key=lambda each: (len(each.parent.name), each.parent.name))
        yield _set(f"BEAM {size}", "BEAM", map(_beam, numbered))


def _beam(path: Path) -> Transcript:
    """Parse a chat and its `probing_questions.json`, beside it or in a folder of that name."""
    place, posts = FilePlace(f"{path.parent.name}/{path.name}"), list[Posted]()
    when = 0.0
    for n, batch in enumerate(place.sequence(_json(path))):
        here = place.at(n).at("turns")
        for turn in (turn for group in here.sequence(batch.get("turns")) for turn in here.sequence(group)):
            anchor = _anchor(turn.get("time_anchor"))
            when = max(when + 60.0, anchor) if posts else anchor or UNDATED
            text = _PLAN.sub("", str(turn.get("content") or ""))
            posts.append(Posted(sender=str(turn["role"]), message=text, id=str(turn["id"]), created_at=when))
    beside = path.with_name("probing_questions.json")
    file = beside if beside.exists() else path.parent / "probing_questions" / beside.name
    known, questions = {post.id for post in posts}, list[Question]()
    for kind, several in FilePlace(file.name).mapping(_json(file)).items():
        for each in several:
            sources = each.get("source_chat_ids")
            versions = sources if isinstance(sources, Mapping) else {}
            newest = _ids(versions.get("updated_info"))
            outdated = tuple(id_ for id_ in _ids(versions.get("original_info")) if newest and id_ not in newest)
            evidence = tuple(id_ for id_ in _ids(sources) if id_ in known)
            if evidence or kind == "abstention":
                questions.append(Question(text=each["question"], evidence=evidence, outdated=outdated, kind=kind))
    return Transcript(conversation=path.parent.name, posts=tuple(posts), source="BEAM", questions=tuple(questions))


def _anchor(value: Any) -> float:
    """Return a time such as `March-15-2024` as Unix seconds, 0 if there is none."""
    try:
        return datetime.strptime(str(value), "%B-%d-%Y").replace(tzinfo=UTC).timestamp() + 9 * 3600
    except ValueError:
        return 0.0


def _ids(value: Any) -> tuple[str, ...]:
    """Return the ids in nested lists and objects, each once."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return tuple(dict.fromkeys(id_ for each in value for id_ in _ids(each)))
    return () if value is None else (str(value),)


# ---- MemoryCode -----------------------------------------------------------------------------------------------------


def _memory_code(folder: Path) -> Iterator[QuestionSet]:
    files = sorted(folder.glob("dialogue_*.json"), key=lambda each: (len(each.name), each.name))
    topics = next((each / "topics.json" for each in (folder, folder.parent) if (each / "topics.json").exists()), None)
    if topics is None:
        FilePlace(folder.name).refuse("MemoryCode needs topics.json beside its dialogues")
    dialogues = [{"id": each.stem, **FilePlace(each.name).mapping(_json(each))} for each in files]
    yield _set(folder.name, "MemoryCode", read_dialogues(FilePlace(folder.name), dialogues, _json(topics)))


# ---- LoCoMo-Plus ----------------------------------------------------------------------------------------------------


def _plus(place: FilePlace, document: Any, talks: Sequence[Transcript]) -> QuestionSet:
    """Insert each cue into a LoCoMo conversation, as a session of its own before the last one, and ask its trigger."""
    originals = {talk.conversation: [each for each in talk.posts if isinstance(each, Posted)] for talk in talks}
    posts = {name: list(several) for name, several in originals.items()}
    questions: dict[str, list[Question]] = {talk.conversation: [] for talk in talks}
    for n, cue in enumerate(document):
        here = place.at(n).mapping(cue)
        talk = talks[n % len(talks)]
        own = originals[talk.conversation]
        speakers = list(dict.fromkeys(post.sender for post in own))
        when = (own[-1].created_at or UNDATED) + 7 * DAY_S - _gap(str(here.get("time_gap", "")))
        lines = re.findall(r"^([AB]):\s*(.*)$", str(here.get("cue_dialogue", "")).replace("\\n", "\n"), re.MULTILINE)
        ids = tuple(f"cue-{n}-{k}" for k in range(len(lines)))
        posts[talk.conversation] += [
            Posted(sender=speakers[who == "B"], message=text, id=id_, created_at=when + k)
            for k, (id_, (who, text)) in enumerate(zip(ids, lines, strict=True))
        ]
        trigger = re.sub(r"^A:\s*", "", str(here.get("trigger_query", "")))
        kind = str(here.get("relation_type", ""))
        questions[talk.conversation].append(Question(text=trigger, evidence=ids, kind=kind))
    transcripts = [
        Transcript(
            conversation=talk.conversation,
            posts=(*sorted(posts[talk.conversation], key=_time),),
            source="LoCoMo-Plus",
            questions=tuple(questions[talk.conversation]),
        )
        for talk in talks
    ]
    return _set(Path(place.file).stem, "LoCoMo-Plus", transcripts)


def _time(post: Posted) -> float:
    return post.created_at or 0.0


def _gap(text: str) -> float:
    """Return a gap such as "about two weeks later" in seconds."""
    found = _GAP.search(text)
    if not found:
        return 0.0
    number = int(found[1]) if found[1].isdigit() else _NUMBERS.index(found[1]) if found[1] in _NUMBERS else 1
    return number * _DAYS[found[2]] * DAY_S


# ---- PrecisionMemBench ----------------------------------------------------------------------------------------------


def _precision(folder: Path) -> Iterator[QuestionSet]:
    """Read beliefs as posts, a conversation for each scope that is asked for.

    Beliefs that have ended, and those of other users, are not stored: only ranking is measured. A query for which the
    set expects no belief must find nothing.
    """
    beliefs = FilePlace("beliefs.seed.json").sequence(_json(folder / "beliefs.seed.json"))
    cases = FilePlace("retrieval.cases.json").sequence(_json(folder / "retrieval.cases.json"))
    valid = [each for each in beliefs if not (each.get("superseded_by") or each.get("resolved_at"))]
    asked: dict[str, list[Question]] = {}
    for case in cases:
        expected = case.get("expect", {}).get("relevantBeliefs", {}).get("shouldOnlyInclude")
        if expected is not None and str(case.get("query", "")).strip():
            question = Question(text=case["query"], evidence=tuple(expected), kind=str(case.get("category", "")))
            asked.setdefault(" ".join(case["scope"]), []).append(question)
    transcripts: list[Transcript] = []
    for scope, questions in asked.items():
        inside = [each for each in valid if set(each["scope"]) & set(scope.split()) and each["user_id"] == "test-user"]
        posts = tuple(
            Posted(
                sender="user",
                message=f"{', '.join([each['canonical_name'].replace('_', ' '), *each['aliases']])}: {each['content']}",
                id=each["_id"],
                created_at=FilePlace("beliefs.seed.json").time(each.get("created_at")),
            )
            for each in inside
        )
        if posts:
            talk = Transcript(conversation=scope, posts=posts, source="PrecisionMemBench", questions=tuple(questions))
            transcripts.append(talk)
    yield _set("PrecisionMemBench", "PrecisionMemBench", transcripts)


# ---- VehicleMemBench and BFCL ---------------------------------------------------------------------------------------


def _vehicles(folder: Path) -> Iterator[QuestionSet]:
    """Read `qa_N.json` and `history_N.txt`, here or in a folder `history` beside it."""
    transcripts: list[Transcript] = []
    for file in sorted(folder.glob("qa_*.json"), key=lambda each: (len(each.name), each.name)):
        name = f"history_{file.stem.removeprefix('qa_')}.txt"
        history = next((each for each in (folder / name, folder.parent / "history" / name) if each.exists()), None)
        if history is None:
            FilePlace(file.name).refuse(f"no {name} beside it, nor in a folder `history`")
        posts = _lines(FilePlace(name), decode(read_bytes(history), name))
        questions = []
        for each in FilePlace(file.name).mapping(_json(file)).get("related_to_vehicle_preference", ()):
            gold = each.get("gold_memory") or ""
            told = gold.splitlines() if isinstance(gold, str) else [str(line) for line in gold]
            evidence = tuple(dict.fromkeys(filter(None, (_closest(line, posts) for line in told if line.strip()))))
            if evidence:
                kind = str(each.get("reasoning_type", ""))
                questions.append(Question(text=each["query"], evidence=evidence, kind=kind))
        transcripts.append(
            Transcript(conversation=file.stem, posts=posts, source="VehicleMemBench", questions=tuple(questions))
        )
    yield _set("VehicleMemBench", "VehicleMemBench", transcripts)


def _lines(place: FilePlace, text: str) -> tuple[Posted, ...]:
    """Parse lines such as `[2026-01-05 09:00:00] Gary: text`; other lines belong to the one before."""
    posts: list[Posted] = []
    for line in text.splitlines():
        found = _LINE.match(line)
        if found:
            when = place.time(found[1].strip())
            posts.append(
                Posted(sender=found[2].strip(), message=found[3], id=f"line-{len(posts) + 1}", created_at=when)
            )
        elif posts and line.strip():
            posts[-1] = replace(posts[-1], message=f"{posts[-1].message}\n{line}")
    return tuple(posts)


def _bfcl(folder: Path) -> Iterator[QuestionSet]:
    """Read the questions, the sentences that answer them, and the conversations before them, one for each user."""
    file = min(folder.glob("BFCL_v*_memory.json"))
    sources = {each["id"]: str(each.get("source", "")) for each in _rows(folder / "possible_answer" / file.name)}
    asked: dict[str, list[tuple[str, str]]] = {}
    for row in _rows(file):
        asked.setdefault(row["scenario"], []).append((row["question"][0][0]["content"], sources.get(row["id"], "")))
    transcripts: list[Transcript] = []
    for scenario, several in asked.items():
        rows = _rows(folder / "memory_prereq_conversation" / f"memory_{scenario}.json")
        posts = tuple(
            Posted(
                sender=turn["role"], message=turn["content"], id=f"s{n}t{k}", created_at=UNDATED + n * DAY_S + 60 * k
            )
            for n, row in enumerate(rows)
            for k, turn in enumerate(turn for turns in row["question"] for turn in turns)
        )
        found = [(text, _quoting(source, posts)) for text, source in several]
        questions = tuple(Question(text=text, evidence=(id_,), kind=scenario) for text, id_ in found if id_)
        transcripts.append(Transcript(conversation=scenario, posts=posts, source="BFCL memory", questions=questions))
    yield _set("BFCL memory", "BFCL memory", transcripts)


def _rows(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a JSONL file, or of a JSON list."""
    document = _document(path)
    if isinstance(document, list):
        return document
    if isinstance(document, dict):
        return [document]
    place = FilePlace(path.name)
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(document.splitlines(), 1):
        if line.strip():
            try:
                rows.append(json.loads(line))
            except ValueError as error:
                place.at(f"line {number}").refuse(f"invalid JSON ({error})")
    return rows


def _quoting(quote: str, posts: Sequence[Posted]) -> str | None:
    """Return the id of the post that contains the longest fragment of a quote, else of the closest one."""
    fragments = sorted((" ".join(_plain(each).split()) for each in re.split(r"\.\.\.|…", quote)), key=len)
    for post in posts:
        if fragments[-1] and fragments[-1] in " ".join(_plain(post.message).split()):
            return post.id
    return _closest(quote, posts)


def _plain(text: str) -> str:
    return text.translate({0x2018: "'", 0x2019: "'", 0x201C: '"', 0x201D: '"'}).strip(' ."').lower()


def _closest(text: str, posts: Sequence[Posted]) -> str | None:
    """Return the id of the post with the most words of a text, of the day that the text names if it has posts."""
    wanted = set(words(_DATE.sub("", text)))
    days = {datetime.fromisoformat(day).replace(tzinfo=UTC) for day in _DATE.findall(text)}
    of_day = [
        post for post in posts for day in days if 0 <= (post.created_at or 0.0) - day.timestamp() < DAY_S
    ]  # fmt: skip
    shared = [(len(wanted & set(words(post.message))), -len(post.message), post.id) for post in of_day or posts]
    best = max(shared, key=lambda each: each[:2], default=(0, 0, None))
    return best[2] if best[0] else None
