"""The configuration: every setting with its default and range, and the source of each value.

Precedence: defaults < file < environment < arguments. This module reads no files; `app` does.
"""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from msgspec import Struct, field

from cuebook.errors import InvalidInput
from cuebook.validate import refuse, validate


class StoreConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The database."""

    url: str = ".cuebook/cuebook.db"  # a file, ":memory:", or later postgresql://…
    synchronous: Literal["FULL", "NORMAL", "OFF"] = "FULL"  # SQLite's: FULL also outlives a power cut


class ModelConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The model that answers `ask` and `/api/chat`."""

    provider: Literal["none", "openai", "llama"] = "none"  # none: answers are what was recalled
    name: str = ""  # llama: a GGUF file, or package:NAME of one that brings it
    base_url: str = "https://api.openai.com/v1"  # any server that speaks OpenAI's wire
    api_key_env: str = "OPENAI_API_KEY"  # the environment's name that holds the key
    timeout_s: float = 120.0  # without a piece of the answer


class EmbedderConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The embedder, which adds semantic search to full-text search."""

    provider: Literal["none", "minilm", "openai"] = "none"  # minilm runs in this process
    name: str = ""  # openai: the server's model
    base_url: str = "https://api.openai.com/v1"  # openai: any server with /embeddings
    api_key_env: str = "OPENAI_API_KEY"  # the environment's name that holds the key
    timeout_s: float = 2.0  # for a query; then full text alone answers
    akin: float = 0.5  # cosine from which on two texts of a server's model are about the same thing
    languages: str = ""  # those a server's model knows, as "en, de"; "" = any


class UpstreamConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The upstream server of `/v1`."""

    url: str = ""  # any server that speaks OpenAI's wire; "" = the book answers
    forward_auth: bool = True  # set, not by default, it goes before api_key_env
    api_key_env: str = ""  # the environment's name that holds the upstream's key
    connect_timeout_s: float = 10.0  # to reach it
    read_timeout_s: float = 300.0  # without a byte of its answer
    cache_rule: Literal["auto", "off", "openai-prefix", "openai-breakpoints", "anthropic", "anthropic-1h", "gemini"] = (
        "auto"  # auto, off, or a rule's name
    )
    breakpoints: Literal["auto", "on", "off"] = "auto"  # place explicit cache breakpoints on the wire
    responses: Literal["answer", "pass"] = "answer"  # pass: /v1/responses goes up as it comes, unkept
    messages: Literal["book", "keep", "pass", "chat"] = "book"  # keep: as it comes; pass: unkept too; chat: as OpenAI's
    shadow: bool = False  # /v1 passes as it comes, and what would have been sent is kept beside it


class WorkConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Background jobs and turn leases."""

    model: Literal["none", "model", "upstream"] = "none"  # what condenses; none: rules do
    interval_s: float = 5.0  # between two looks for what is due
    lease_s: float = 30.0  # after which a turn or task of a process that died is taken over
    checkpoint_s: float = 2.0  # between two writes of what has come of an answer
    wait_s: float = 3600.0  # for the results of a turn's tools, before its round counts as left


class BudgetConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The token budget of a prompt. Defaults are those of seed C."""

    tokens: Literal["estimate", "chars4", "o200k", "cl100k"] = "estimate"  # how they are counted
    context: int = 200_000  # tokens of the model's window, the answer's with them
    system: int = 5_000  # tokens kept free for persona and instructions, a tenth of the window at most
    reply: int = 4_096  # tokens kept free for the answer
    max_short_term: int = 190_000  # tokens for posts of the path
    window_posts: int = 30  # posts that stay whole
    trigger: float = 0.7  # share of their room that posts fill when profile `budget` condenses
    memory: int = 1_500  # tokens for recalled memories beside the query, at most


class MemoryConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Summarization, recall and cross-conversation memory."""

    presets: str = "config/metaprompt-presets.json"  # a file: each mode's profile
    profile: str = ""  # overrides the file's defaultProfile
    recall: bool = True  # what was said earlier is looked up for each query
    recall_hits: int = 12  # posts that are recalled at most
    user: bool = False  # what a user says is known in their other conversations, where nothing else is said
    persona: bool = False  # likewise, to one persona
    organization: bool = False  # what the organization that a request names knows is read
    sink: str = ""  # a file that gets each finished pass as lines of JSON
    time_zone: str = "UTC"  # whose days "yesterday" and the rest are, where nothing else is said; an IANA name
    review_every: int = 6  # turns after which durable memories are chosen anew


class OptimizerConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The optimizer, which tunes how many messages a conversation keeps verbatim."""

    enabled: bool = True  # conversations are judged and tuned behind their replies
    interval_ms: int = 120_000  # between two runs in a conversation


class PersonaConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Personas."""

    folder: str = "personas"  # of *.json and *.yaml
    default: str = ""  # who speaks where nobody is named
    speaks: Literal["always", "asked"] = "always"  # asked: not before a /v1 program's own system text, unless named


class ExperienceConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Handwritten advice that is added to a prompt where it fits the query."""

    folder: str = "experience"  # handcrafted_exp_*.yaml
    selection: Literal["auto", "model", "similarity", "off"] = "auto"  # auto: by a model where one is named for it
    model: str = ""  # of the server that answers, or of /v1's; "" = that of [work]
    timeout_s: float = 4.0  # for a model's choice; then words and meaning decide
    most: int = 3  # that stand in one prompt


class LogsConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Files written for people to read."""

    prompts: str = ""  # a folder that gets each prompt as it was sent; "" = none is written


class PromptsConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Prompt management: the folder of the files, and how a variant is selected."""

    folder: str = "prompts"  # where its files lie
    project: str = ""  # whose own prompts, below projects/NAME, stand for the others; "" = nobody's
    autopush: bool = True  # files changed on disk are pushed when the book is opened
    strategy: Literal["epsilon_greedy", "thompson"] = "epsilon_greedy"  # how a variant is chosen
    rollback: Literal["guarded", "sigma", "off"] = "guarded"  # how a version that does worse is taken back by itself


class LearningConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Automatic feedback for prompt versions."""

    #: What the user says next is an observation of prompts that spoke before: `auto` those that had others beside them,
    #: `all` every one, so that an edit of it is on trial against the version before.
    observe: Literal["auto", "all", "off"] = "auto"


class ServerConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The HTTP server."""

    host: str = "127.0.0.1"  # others need a key
    port: int = 8760  # 0 = a free one
    max_body: int = 8 * 1024 * 1024  # bytes of a request
    max_v1_body: int = 64 * 1024 * 1024  # bytes of a request under /v1
    max_post: int = 2 * 1024 * 1024  # bytes of one post
    line: int = 64  # turns that may wait for one conversation
    max_calls: int = 200  # calls of the model one request may ask for
    watchers: int = 100  # live views, and clients that listen at /mcp, at once
    watchers_of_key: int = 20  # of them under one key


class SecretsConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Redaction of secrets."""

    redact: bool = True  # secrets are replaced before anything is stored
    key_file: str = ""  # default: beside the database


class RetentionConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """How long unused data is kept; 0 = forever."""

    conversations_days: int = 0  # since the last thing said
    memories_days: int = 0  # since a memory was last said, repeated or changed


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """All settings by section."""

    store: StoreConfig = StoreConfig()
    model: ModelConfig = ModelConfig()
    embedder: EmbedderConfig = EmbedderConfig()
    upstream: UpstreamConfig = UpstreamConfig()
    work: WorkConfig = WorkConfig()
    budget: BudgetConfig = BudgetConfig()
    memory: MemoryConfig = MemoryConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    persona: PersonaConfig = PersonaConfig()
    prompts: PromptsConfig = PromptsConfig()
    experience: ExperienceConfig = ExperienceConfig()
    logs: LogsConfig = LogsConfig()
    learning: LearningConfig = LearningConfig()
    server: ServerConfig = ServerConfig()
    secrets: SecretsConfig = SecretsConfig()
    retention: RetentionConfig = RetentionConfig()


class Config(Struct, frozen=True):
    """The effective settings. `origins` maps "section.key" to the source of its value; other values are defaults."""

    settings: Settings = Settings()
    origins: Mapping[str, str] = field(default_factory=dict)
    folder: str = "."  # what relative paths are relative to
    compaction_env: Mapping[str, str] = field(default_factory=dict)  # MEMORY_COMPACTION_* (R8)

    def sets(self, place: str) -> bool:
        """Return whether "section.key" is set explicitly, even to its default."""
        return place in self.origins


#: The least and the most a number may be; a number of seconds must be more than its least.
RANGES: dict[str, tuple[float, float]] = {
    "model.timeout_s": (0, 86_400),
    "embedder.timeout_s": (0, 600),
    "embedder.akin": (0, 1),
    "upstream.connect_timeout_s": (0, 86_400),
    "upstream.read_timeout_s": (0, 86_400),
    "work.interval_s": (0, 86_400),
    "work.lease_s": (0, 86_400),
    "work.checkpoint_s": (0, 86_400),
    "work.wait_s": (0, 31 * 86_400),
    "budget.context": (1, 1_000_000_000),
    "budget.system": (0, 1_000_000_000),
    "budget.reply": (0, 1_000_000_000),
    "budget.max_short_term": (1, 1_000_000_000),
    "budget.window_posts": (1, 1_000_000),
    "budget.trigger": (0, 1),
    "budget.memory": (0, 1_000_000_000),
    "memory.recall_hits": (0, 200),
    "experience.timeout_s": (0, 600),
    "experience.most": (1, 20),
    "optimizer.interval_ms": (1, 31 * 86_400_000),
    "retention.conversations_days": (0, 36_500),
    "retention.memories_days": (0, 36_500),
    "server.port": (0, 65_535),
    "server.max_body": (1, 1 << 40),
    "server.max_v1_body": (1, 1 << 40),
    "server.max_post": (1, 1 << 40),
    "server.line": (0, 1_000_000),
    "server.max_calls": (0, 1_000_000),
    "server.watchers": (0, 100_000),
    "server.watchers_of_key": (0, 100_000),
}
#: An address requests can be sent below: no query, no fragment.
_ADDRESS = re.compile(
    r"https?://(?:[^/?#\s]*@)?(?:\[[0-9a-f:.]+\]|[^/?#\s:@\[\]]+)(?::(\d{1,5}))?(/[^?#\s]*)?", re.IGNORECASE
)
_SECRET = re.compile(r"(?<=://)[^/@\s]+(?=@)")
#: Environment names that are not CUEBOOK_SECTION_KEY.
ALIASES = {"CUEBOOK_DATABASE_URL": "store.url"}
_PREFIX = "CUEBOOK_"
#: CUEBOOK_ names that are no settings.
_OTHER = frozenset({"CUEBOOK_FAILPOINT", "CUEBOOK_CONFIG"})


def build(
    *,
    file: Mapping[str, Any] | None = None,
    file_name: str = "cuebook.toml",
    environment: Mapping[str, str] | None = None,
    arguments: Mapping[str, Any] | None = None,
    folder: str = ".",
) -> Config:
    """Build the configuration. `arguments` maps "section.key" to a value. Raises InvalidInput naming the setting."""
    values: dict[str, dict[str, Any]] = {}
    origins: dict[str, str] = {}
    for section, keys in (file or {}).items():
        if not isinstance(keys, Mapping):
            msg = f"{file_name}: {section!r} stands outside a section; settings belong under [section]"
            raise InvalidInput(msg, where=section)
        values.setdefault(section, {})
        for key, value in keys.items():
            _put(values, origins, f"{section}.{key}", value, file_name)
    known = _known()
    for name, text in sorted((environment or {}).items()):
        place = ALIASES.get(name) or _place(name, known)
        if place:
            _put(values, origins, place, _from_text(known[place], text, name), f"environment {name}")
    for place, value in (arguments or {}).items():
        _put(values, origins, place, value, "argument")
    compaction = {name: text for name, text in (environment or {}).items() if name.startswith("MEMORY_COMPACTION_")}
    settings = _convert(values, origins)
    for places, problem in _problems(settings):
        origin = next((origins[place] for place in places if place in origins), "settings")
        msg = f"{origin}: {places[0]}: {problem}"
        raise InvalidInput(msg, where=places[0])
    return Config(settings, origins, folder, compaction)


def _put(values: dict[str, dict[str, Any]], origins: dict[str, str], place: str, value: object, origin: str) -> None:
    section, _, key = place.partition(".")
    values.setdefault(section, {})[key] = value
    origins[place] = origin


def _known() -> dict[str, type]:
    """Return every setting and the type of its default."""
    settings = Settings()
    return {
        f"{section}.{name}": type(getattr(getattr(settings, section), name))
        for section in Settings.__struct_fields__
        for name in getattr(settings, section).__struct_fields__
    }


def _place(name: str, known: Mapping[str, type]) -> str | None:
    if not name.startswith(_PREFIX) or name in _OTHER:
        return None
    place = name.removeprefix(_PREFIX).lower().replace("_", ".", 1)
    if place not in known:
        msg = f"environment {name}: there is no setting {place!r}; `cuebook config` lists them"
        raise InvalidInput(msg, where=name)
    return place


def _from_text(kind: type, text: str, name: str) -> object:
    try:
        if kind is bool:
            return {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}[text.strip().lower()]
        return kind(text)
    except (ValueError, KeyError):
        msg = f"environment {name}: {text!r} is no {kind.__name__}"
        raise InvalidInput(msg, where=name) from None


def _convert(values: Mapping[str, Mapping[str, Any]], origins: Mapping[str, str]) -> Settings:
    settings, faults = validate(values, Settings)
    if faults:
        refuse(faults, file=origins.get(faults[0].path) or next(iter(origins.values()), "settings"))
    assert settings is not None  # noqa: S101  # without a fault there is a value
    return settings


def _problems(settings: Settings) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield each invalid value or combination, with its settings."""
    for place, (least, most) in RANGES.items():
        section, _, key = place.partition(".")
        value = getattr(getattr(settings, section), key)
        above = isinstance(value, float)
        if not math.isfinite(value) or not least <= value <= most or (above and value == least):
            allowed = f"above {least:,} and at most {most:,}" if above else f"from {least:,} to {most:,}"
            yield (place,), f"{value} is out of range; give a number {allowed}"
    budget = settings.budget
    if budget.context <= budget.reply:
        said = f"{budget.context:,} tokens leave nothing beside budget.reply ({budget.reply:,}); raise it or lower that"
        yield ("budget.context", "budget.reply"), said
    addresses = {"upstream.url": settings.upstream.url, "model.base_url": settings.model.base_url}
    for place, url in (addresses | {"embedder.base_url": settings.embedder.base_url}).items():
        if (url or place != "upstream.url") and not _is_address(url):
            shown = url.partition("://")[0] + "://…" + url.rpartition("@")[2] if "@" in url else url
            yield (place,), f"{shown!r} is no address; give one like http://127.0.0.1:8080/v1"
    yield from _lacking(settings)
    for code in languages_of(settings.embedder):
        if not re.fullmatch("[a-z]{2,3}", code):
            yield ("embedder.languages",), f'{code!r} is no language; give codes like "en, de", or "" for any'
    kind, mark, _ = settings.store.url.partition("://")
    if mark and not settings.store.url.startswith("sqlite:///"):
        yield ("store.url",), f'{kind!r} is no store of this version; name a SQLite file, or ":memory:"'


def _lacking(settings: Settings) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield each enabled setting whose required setting is missing."""
    if settings.upstream.shadow and not settings.upstream.url:
        yield ("upstream.shadow", "upstream.url"), "there is nothing to pass to; set upstream.url, or --upstream URL"


def languages_of(settings: EmbedderConfig) -> frozenset[str]:
    """Return the languages that a server's model supports (ISO 639-1); empty = any."""
    return frozenset(settings.languages.replace(",", " ").split())


def _is_address(url: str) -> bool:
    found = _ADDRESS.fullmatch(url)
    return found is not None and 0 < int(found[1] or 1) <= 65_535


def has_path(url: str) -> bool:
    """Return whether a URL has a path: most servers offer the OpenAI API below a path such as /v1."""
    found = _ADDRESS.fullmatch(url)
    return found is not None and (found[2] or "/").strip("/") != ""


def without_secret(address: str) -> str:
    """Return a URL without its user and password."""
    return _SECRET.sub("***", address)
