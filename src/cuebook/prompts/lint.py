"""Lint prompts: find errors, risks and waste before a model gets them. `rules` lists them."""

import re
import tomllib
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import Any, Final, Literal

from msgspec import Struct

from cuebook.errors import InvalidInput
from cuebook.prompts.clusters import near_duplicates
from cuebook.prompts.files import ALIASES, KEYS
from cuebook.prompts.inherit import resolve, text_of
from cuebook.prompts.names import candidates, overridden, parse_reference
from cuebook.prompts.template import placeholders, used
from cuebook.records.expression import Expression, lowered
from cuebook.records.prompt import MAIN, Engine, ResolvedVersion, Version
from cuebook.records.redaction import announced, family_of, spans

# ---- a text by itself -----------------------------------------------------------------------------------------------


#: Invisible bidirectional controls: people read another text than the model.
_BIDI = Expression("[\u202a-\u202e\u2066-\u2069]")
#: Invisible characters: controls, soft hyphen, zero widths, fillers, ASCII's tag twins, runs of variation selectors.
_HIDDEN = Expression(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b\u2060-\u2064\u206a-\u206f"
    "\u3164\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e0fff]|[\ufe00-\ufe0f]{2}"
    # Scripts and emoji need the joiners and direction marks; Latin words do not.
    "|(?<=[A-Za-z])[\u061c\u200c-\u200f](?=[A-Za-z])"
)
#: Cyrillic and Greek letters that look like Latin ones (Unicode TR 39, confusables), next to a Latin letter.
_TWINS = "аеорсухіјѕԁһԛѡАВЕКМНОРСТХІЈЅΑΒΕΖΗΙΚΜΝΟΡΤΥΧνορ"
_CONFUSABLE = Expression(rf"[A-Za-z][{_TWINS}]|[{_TWINS}][A-Za-z]")
_WORD = Expression(r"\w{1,80}")

#: The name of a part in a phrase.
_PART = re.compile("<([a-z]+)>")

Severity = Literal["error", "warning", "info"]
#: A finding in a text: the violated rule, the position, and the message.
TextSpot = tuple[str, int, str]


def spots(text: str) -> Iterator[TextSpot]:
    """Yield the findings of a text; of each kind, only the first."""
    for start, _, family in spans(text)[:1]:
        yield ("secret", start, f"contains a secret ({family.replace('_', ' ')}). Use a parameter, or remove it.")
    yield from _phrases(text)
    if text.isascii() and text.isprintable():
        return
    yield from _characters(text)


@cache
def _tables() -> dict[str, Any]:
    return tomllib.loads(files(__package__).joinpath("lint.toml").read_text("utf-8"))


def rules() -> Mapping[str, tuple[Severity, str]]:
    """Return every rule by name: severity and description."""
    return _tables()["rules"]  # type: ignore[no-any-return]  # as the file has it


@cache
def _injections() -> list[re.Pattern[str]]:
    """Return the known injection phrases."""
    filled = (_PART.sub(lambda part: _tables()["parts"][part[1]], each) for each in _tables()["phrases"])
    return [re.compile(each.replace(" ", r"\s{1,20}")) for each in filled]


def _phrases(text: str) -> Iterator[TextSpot]:
    plain = _folded(text)
    results = [match for phrase in _injections() if (match := phrase.search(plain))]
    if results:
        first = min(results, key=lambda match: match.start())
        content = " ".join(text[first.start() : first.end()].split())[:60]
        yield "injection", first.start(), f"contains {content!r}, a known injection phrase. Reword it, also in rules."


def _characters(text: str) -> Iterator[TextSpot]:
    for rule, pattern, what in (
        ("bidi", _BIDI, "which reorders the displayed text"),
        ("hidden", _HIDDEN, "which is invisible"),
    ):
        if match := pattern.search(text):
            char = match.group()[0]
            name = unicodedata.name(char, "a control character")
            yield (rule, match.start(), f"contains U+{ord(char):04X} ({name}), {what}. Remove it.")
    twin = _CONFUSABLE.search(text)
    if twin:
        start = next(
            word.start() for word in _WORD.finditer(text, max(0, twin.start() - 80)) if word.end() > twin.start()
        )
        content = text[start : twin.end() + 10].split(maxsplit=1)[0]
        yield ("confusable", twin.start(), f"{content!a} mixes scripts with look-alike letters. Use one script.")


def _folded(text: str) -> str:
    """Return a text in lower case and plain letters; positions do not change."""
    if text.isascii():
        return text.lower()
    return lowered("".join(map(_plain_letter, text)))


def _plain_letter(char: str) -> str:
    plain = char if char < "\u2000" else unicodedata.normalize("NFKC", char)
    return plain if len(plain) == 1 else char


#: Maximum tokens of a system text (`budget.system`, BrowserOS).
MOST_TOKENS: Final = 5_000
#: Minimum characters after a changing value for which a move pays off: some 50 tokens.
_BEHIND: Final = 200

_CHANGING = re.compile(
    r"(?:.*_)?(?:now|time|datetime|timestamp|clock|minute|uuid|nonce|random|turn|query|question|message"
    r"|request_id|message_id|turn_id)",
    re.IGNORECASE,
)
_MINUTES = re.compile(r"\b(?:19|20)[0-9]{2}-[01][0-9]-[0-3][0-9][T ,]{1,2}[0-2][0-9]:[0-5][0-9]")
#: Names in `$NAME` that are no forgotten parameters: shell variables, LaTeX and other mathematics.
_NO_PARAM = re.compile(r"[A-Z0-9_]+|[A-Za-z]|_")
#: Severities of findings, worst first.
SEVERITIES: Final[tuple[Severity, ...]] = ("error", "warning", "info")


class LintFinding(Struct, frozen=True):
    """A rule's finding: the prompt, the place (`sections.identity:3` is its third line), and advice."""

    rule: str
    severity: Severity
    slug: str
    where: str
    message: str


class _Subject(Struct, frozen=True):
    """A version to lint: resolved or with its fault, and with data of its descendants."""

    version: Version
    resolved: ResolvedVersion | None
    fault: str = ""
    inherited: frozenset[str] = frozenset()  # sections of its ancestors
    used_below: set[str] = set()  # parameters that its text or a descendant's uses
    declared_below: set[str] = set()


def _finding(subject: _Subject, rule: str, where: str, message: str) -> LintFinding:
    version = subject.version
    slug = version.slug if version.branch == MAIN else f"{version.slug}@{version.branch}"
    return LintFinding(rule, rules()[rule][0], slug, where, message)


def lint(
    versions: Sequence[Version],
    *,
    count: Callable[[str], int],
    known: Collection[str] = (),
) -> tuple[LintFinding, ...]:
    """Return the findings for these versions, the most severe first, then by prompt and place.

    `count` counts a text's tokens. Parents are among `versions`. `known` are more ids that a project's prompt may
    override.
    """
    subjects = _subjects(versions, _among(versions))
    findings: list[LintFinding] = []
    for subject in subjects:
        for rule in (_texts, _parents, _params, _front, _fields):
            findings += rule(subject)
        tokens = count(text_of(subject.resolved)) if subject.resolved else 0
        if tokens > MOST_TOKENS:
            message = f"has {tokens} tokens, with its ancestors; the limit is {MOST_TOKENS}"
            findings.append(_finding(subject, "too-long", "sections", message))
    findings += _duplicates(subjects)
    findings += _projects(subjects, {*known, *(each.slug for each in versions)})
    return tuple(sorted(findings, key=lambda each: (SEVERITIES.index(each.severity), each.slug, each.where, each.rule)))


def _projects(subjects: Sequence[_Subject], known: Collection[str]) -> Iterator[LintFinding]:
    for subject in subjects:
        names = overridden(subject.version.slug)
        if names and not any(name in known for name in names):
            message = f"overrides nothing: there is no prompt {names[0]!r}. Create it, or rename this prompt."
            yield _finding(subject, "vain-project", "name", message)


def _among(versions: Iterable[Version]) -> Callable[[str], Version | None]:
    by_place = {version.place: version for version in versions}

    def parent_of(text: str) -> Version | None:
        reference = parse_reference(text)
        places = ((slug, reference.branch or MAIN) for slug in candidates(reference.slug))
        return next((by_place[place] for place in places if place in by_place), None)

    return parent_of


def _subjects(versions: Sequence[Version], parent_of: Callable[[str], Version | None]) -> list[_Subject]:
    """Return all versions resolved, each with the parameters that its descendants use and declare."""
    subjects = []
    for version in versions:
        try:
            whole = resolve(version, parent_of)
            parent = parent_of(version.inherits) if version.inherits else None
            inherited = frozenset(resolve(parent, parent_of).sections if parent else ())
            subjects.append(_Subject(version, whole, inherited=inherited))
        except InvalidInput as error:
            subjects.append(_Subject(version, None, fault=str(error)))
    by_source = {subject.version.source: subject for subject in subjects}
    for whole in (subject.resolved for subject in subjects if subject.resolved):
        names = {param.name for param in whole.params}
        for source in whole.lineage:
            by_source[source].used_below.update(used(text_of(whole), whole.version.engine, names))
            by_source[source].declared_below.update(names)
    return subjects


# ---------------------------------------------------------------- rules
def _own(version: Version) -> Iterator[tuple[str, str]]:
    """Yield a version's own texts with their places."""
    yield from ((f"sections.{name}", text) for name, text in version.sections.items())
    yield from ((f"override_sections.{name}", text) for name, text in version.override_sections.items())


def _texts(subject: _Subject) -> Iterator[LintFinding]:
    """Check all texts for secrets, phrases and characters."""
    version = subject.version
    for where, text in _own(version):
        for rule, start, message in spots(text):
            yield _finding(subject, rule, f"{where}:{text.count(chr(10), 0, start) + 1}", message)
    for where, text in _others(version):
        for rule, _, message in spots(text):
            yield _finding(subject, rule, where, message)


def _others(version: Version) -> Iterator[tuple[str, str]]:
    """Yield a version's texts that no prompt shows, with their places."""
    yield "description", version.description
    yield "author", version.author
    yield "type", version.type
    yield from (("sections", name) for name in (*version.sections, *version.override_sections))
    yield from (("params", param.name) for param in version.params)
    yield from ((f"tags[{place}]", tag) for place, tag in enumerate(version.tags))
    for param in version.params:
        yield from ((f"params.{param.name}", text) for text in (param.default or "", param.description))
    yield from _leaves(version.metadata, "metadata")


def secret_in(version: Version) -> tuple[str, str] | None:
    """Return the place and the family of the first secret in a version, None for none."""
    found = ((where, spans(text)) for texts in (_own(version), _others(version)) for where, text in texts)
    return next(((where, secrets[0][2]) for where, secrets in found if secrets), None)


def refuse_secrets(where: str, *names: str) -> None:
    """Check that names, such as that of an author, contain no secret. Raises InvalidInput for the field `where`."""
    for found in filter(None, map(spans, names)):
        msg = f"{where}: contains a secret ({found[0][2].replace('_', ' ')}). Use a name without it."
        raise InvalidInput(msg, where=where)


def _leaves(value: Any, where: str) -> Iterator[tuple[str, str]]:
    """Yield the texts and keys of metadata; a text has its key if that indicates a secret."""
    if isinstance(value, Mapping):
        for key, child in value.items():
            yield where, str(key)
            secret = isinstance(child, str) and (family := family_of(str(key))) and announced(child, family)
            yield from [(f"{where}.{key}", f"{key}={child}")] if secret else _leaves(child, f"{where}.{key}")
    elif isinstance(value, list | tuple):
        for place, child in enumerate(value):
            yield from _leaves(child, f"{where}[{place}]")
    elif isinstance(value, str):
        yield where, value


def _parents(subject: _Subject) -> Iterator[LintFinding]:
    """Check what a version inherits."""
    version, whole = subject.version, subject.resolved
    if whole is None:
        yield _finding(subject, "broken-inherits", "inherits", subject.fault)
    elif not text_of(whole).strip():
        yield _finding(subject, "empty", "sections", "has no text. Write a section.")
    if whole is None or not version.override_sections:
        return
    for name in version.override_sections:
        if name not in subject.inherited:
            why = "no ancestor has it" if version.inherits else "there is no parent"
            yield _finding(subject, "vain-override", f"override_sections.{name}", f"overrides nothing: {why}")


def _params(subject: _Subject) -> Iterator[LintFinding]:
    """Check the placeholders in a version's texts against its parameters."""
    version, whole = subject.version, subject.resolved
    if whole is None:
        return
    declared = {param.name for param in whole.params} | subject.declared_below
    for where, text in _own(version):
        for name in sorted(placeholders(text, version.engine) - declared):
            near = get_close_matches(name, declared, n=1)
            if near or version.engine == "braces" or not _NO_PARAM.fullmatch(name):
                hint = f"Did you mean {near[0]!r}?" if near else "Declare it, or double its mark to keep it literally."
                yield _finding(
                    subject, "undeclared-param", where, f"{name!r} is not a parameter, so it stays unchanged. {hint}"
                )
        other: Engine = "braces" if version.engine == "dollar" else "dollar"
        if version.engine != "none":
            for name in sorted(used(text, other, declared)):
                yield _finding(
                    subject, "other-syntax", where, f"{name!r} uses the syntax of engine {other}, so it stays unchanged"
                )
    for param in version.params:
        if param.name not in subject.used_below:
            message = f"{param.name!r} is not used in the text. Use it or remove it."
            yield _finding(subject, "unused-param", f"params.{param.name}", message)


def _front(subject: _Subject) -> Iterator[LintFinding]:
    """Check for values that change every turn: the provider's cache ends at the first one."""
    whole = subject.resolved
    if whole is None:
        return
    changing = {param.name for param in whole.params if _CHANGING.fullmatch(param.name)}
    left = len(text_of(whole))
    for section, text in whole.sections.items():
        places = [
            (match.start(), f"{name!r} changes every turn")
            for name in sorted(used(text, whole.version.engine, changing))
            if (match := re.search(rf"[${{]\s*{name}\b", text))
        ]
        if match := _MINUTES.search(text):
            places.append((match.start(), f"{match.group()!r} looks generated each time"))
        if places:
            start, why = min(places)
            behind = left - start
            if behind >= _BEHIND:
                line = text.count("\n", 0, start) + 1
                message = f"{why}, so no cache keeps the {behind} characters after it. Move it to the end."
                yield _finding(subject, "unstable-front", f"sections.{section}:{line}", message)
            return
        left -= len(text) + 2


def _fields(subject: _Subject) -> Iterator[LintFinding]:
    """Check the fields besides the text."""
    version = subject.version
    if not version.description.strip():
        yield _finding(subject, "no-description", "description", "is missing. State the prompt's purpose in one line.")
    extra = version.metadata.get("extra")
    for key in extra if isinstance(extra, Mapping) else ():
        near = get_close_matches(str(key), [*KEYS, *ALIASES], n=1, cutoff=0.75)
        if near:
            yield _finding(subject, "unknown-key", f"metadata.extra.{key}", f"is ignored. Did you mean {near[0]!r}?")


def _duplicates(subjects: Iterable[_Subject]) -> Iterator[LintFinding]:
    """Compare prompts by their own text. A prompt's branches are similar by design, so only `main` is compared."""
    chosen: dict[str, _Subject] = {}
    for subject in subjects:
        if subject.version.slug not in chosen or subject.version.branch == MAIN:
            chosen[subject.version.slug] = subject
    texts = {slug: "\n".join(text for _, text in _own(chosen[slug].version)) for slug in sorted(chosen)}
    for other, slug, similarity in near_duplicates(texts):
        message = f"is {similarity:.0%} the text of {other!r}. Move common text into a parent."
        yield _finding(chosen[slug], "near-duplicate", "sections", message)
