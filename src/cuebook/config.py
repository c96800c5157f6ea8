"""The configuration: every setting with its default and range, and the source of each value.

Precedence: defaults < file < environment < arguments. This module reads no files; `app` does.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from cuebook.errors import InvalidInput
from cuebook.validate import refuse, validate

#: Types of numbers and their ranges.
Seconds = Annotated[float, Meta(gt=0, le=86_400)]
Timeout = Annotated[float, Meta(gt=0, le=600)]
Month = Annotated[float, Meta(gt=0, le=31 * 86_400)]
Share = Annotated[float, Meta(gt=0, le=1)]
Tokens = Annotated[int, Meta(ge=0, le=1_000_000_000)]
SomeTokens = Annotated[int, Meta(ge=1, le=1_000_000_000)]
Bytes = Annotated[int, Meta(ge=1, le=1 << 40)]
Count = Annotated[int, Meta(ge=0, le=1_000_000)]
Watchers = Annotated[int, Meta(ge=0, le=100_000)]
Days = Annotated[int, Meta(ge=0, le=36_500)]


#: The beginnings of the URL of a PostgreSQL server.
SERVERS = ("postgresql://", "postgres://")


class StoreConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The database."""

    url: str = ".cuebook/cuebook.db"  # a file, postgresql://USER@HOST/DATABASE, or ":memory:"
    synchronous: Literal["FULL", "NORMAL", "OFF"] = "FULL"  # SQLite's setting: FULL also survives a power cut


class ModelConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The model that answers `ask` and `/api/chat`."""

    provider: Literal["none", "openai", "llama"] = "none"  # none: answers quote memory
    name: str = ""  # llama: a GGUF file, or package:NAME of a package that contains one
    base_url: str = "https://api.openai.com/v1"  # any server with an OpenAI-compatible API
    api_key_env: str = "OPENAI_API_KEY"  # environment variable of the API key
    timeout_s: Seconds = 120.0  # longest pause between two chunks of an answer


class EmbedderConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The embedder, which adds semantic search to full-text search."""

    provider: Literal["none", "minilm", "multilingual", "openai"] = "none"  # minilm, multilingual: in this process
    name: str = ""  # openai: the name of the server's model
    base_url: str = "https://api.openai.com/v1"  # openai: any server with an /embeddings endpoint
    api_key_env: str = "OPENAI_API_KEY"  # environment variable of the API key
    timeout_s: Timeout = 2.0  # for a query; after that, full-text search alone is used
    akin: Share = 0.5  # cosine similarity from which two texts are about the same thing, for a server's model
    languages: str = ""  # languages that a server's model supports, as "en, de"; "" = any


class UpstreamConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The upstream server of `/v1`."""

    url: str = ""  # any server with an OpenAI-compatible API; "" = no upstream, [model] answers
    forward_auth: bool = True  # forward the client's key; set explicitly, it overrides api_key_env
    api_key_env: str = ""  # environment variable of the upstream's API key
    connect_timeout_s: Seconds = 10.0  # timeout for the connection
    read_timeout_s: Seconds = 300.0  # longest pause between two bytes of an answer
    cache_rule: Literal["auto", "off", "openai-prefix", "openai-breakpoints", "anthropic", "anthropic-1h", "gemini"] = (
        "auto"  # prompt cache rule of the provider: auto, off, or a name
    )
    breakpoints: Literal["auto", "on", "off"] = "auto"  # write explicit cache breakpoints into requests
    messages: Literal["auto", "chat"] = "auto"  # /v1/messages goes upstream in its own format, or as chat completions
    #: The format in which /v1/responses goes upstream. auto: its own, or chat if the upstream lacks the API
    responses: Literal["auto", "native", "chat"] = "auto"
    shadow: bool = False  # forward /v1 unchanged, and record what Cuebook would have sent


class WorkConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Background jobs and turn leases."""

    #: The model of all background jobs: summaries, sentiment, moods, choices of experiences. none: rules, or the server
    #: of model_name if that is set
    model: Literal["none", "model", "upstream"] = "none"
    model_name: str = ""  # another model of that server, else of [model] or [upstream]; "" = model.name
    where: Literal["everywhere", "workers"] = "everywhere"  # workers: only `cuebook worker` runs background jobs
    interval_s: Seconds = 5.0  # pause between two checks for due jobs
    lease_s: Seconds = 30.0  # time after which the turn or job of a crashed process is taken over
    checkpoint_s: Seconds = 2.0  # pause between two saves of a partial answer
    wait_s: Month = 3600.0  # longest wait for a turn's tool results; then the round is abandoned


class BudgetConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The token budget of a prompt. Defaults are those of BrowserOS."""

    tokens: Literal["estimate", "chars4", "o200k", "cl100k"] = "estimate"  # tokenizer that counts tokens
    context: SomeTokens = 200_000  # context window with the answer; set explicitly, it applies to every model
    system: Tokens = 5_000  # tokens reserved for persona and instructions, at most a tenth of the window
    reply: Tokens = 4_096  # tokens reserved for the answer
    max_short_term: SomeTokens = 190_000  # tokens for the conversation's messages
    window_posts: Annotated[int, Meta(ge=1, le=1_000_000)] = 30  # newest messages that are kept verbatim
    trigger: Share = 0.7  # share of the message budget at which profile `budget` summarizes
    memory: Tokens = 1_500  # most tokens for recalled memories beside the query


class MemoryConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Summarization, recall and cross-conversation memory."""

    presets: str = "config/metaprompt-presets.json"  # file with the profile of each mode
    profile: str = ""  # overrides the file's defaultProfile
    recall: bool = True  # search earlier messages for each query
    recall_hits: Annotated[int, Meta(ge=0, le=200)] = 12  # most messages that are recalled
    recall_model: str = ""  # model that rewrites queries of searches and reranks their results; "" = none
    recall_timeout_s: Timeout = 3.0  # longest wait of a search for it; after that, the search uses no model
    #: Share what a user says with their other conversations. named: for requests to /v1 that name their user
    user: bool | Literal["named"] = "named"
    persona: bool = False  # the same, for one persona only
    organization: bool = False  # use memories of the organization that a request names
    folder: str = ""  # folder of Markdown files that a running server keeps equal to the memories; "" = none
    sink: str = ""  # file to which each finished summarization is appended as JSON lines
    time_zone: str = "UTC"  # default IANA time zone of "yesterday" and other dates
    review_every: int = 6  # turns between two selections of durable memories


class OptimizerConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The optimizer, which tunes how many messages a conversation keeps verbatim."""

    enabled: bool = True  # evaluate and tune conversations in the background
    interval_ms: Annotated[int, Meta(ge=1, le=31 * 86_400_000)] = 120_000  # pause between two runs in a conversation


class PersonaConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Personas."""

    folder: str = "personas"  # folder of *.json and *.yaml files
    default: str = ""  # persona of requests that name none
    speaks: Literal["always", "asked"] = "asked"  # asked: only in /v1 requests whose model names it


class ExperienceConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Handwritten advice that is added to a prompt where it fits the query."""

    folder: str = "experience"  # folder of handcrafted_exp_*.yaml files
    selection: Literal["auto", "model", "similarity", "off"] = "auto"  # auto: by a model if one is set
    model: str = ""  # model of the answering server or the upstream; "" = the model of [work]
    timeout_s: Timeout = 1.5  # longest wait of a reply for a model's choice; after that, similarity decides
    most: Annotated[int, Meta(ge=1, le=20)] = 3  # most entries in one prompt


class LogsConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Files written for people to read."""

    prompts: str = ""  # folder to which each sent prompt is written; "" = none


class PromptsConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Prompt management: the folder of the files, and how a variant is selected."""

    folder: str = "prompts"  # folder of the prompt files
    project: str = ""  # name whose prompts below projects/NAME override the others; "" = none
    autopush: bool = True  # push files that changed on disk when the project is opened
    strategy: Literal["epsilon_greedy", "thompson"] = "epsilon_greedy"  # how a variant is selected
    rollback: Literal["guarded", "sigma", "off"] = "guarded"  # automatic rollback of a worse version


class SyncConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Prompt sync between projects."""

    hub: str = ""  # default location: klp://HOST[:PORT]/SPACE, https://… or file:///DIR
    name: str = ""  # this project's name at the hub; default: the name of its folder
    keys: str = ""  # fingerprints of trusted projects' keys, separated by spaces
    blocked: str = ""  # names of projects that are ignored, separated by spaces
    api_key_env: str = "KLP_API_KEY"  # environment variable of the API key for the hub
    expires_days: Annotated[int, Meta(ge=1, le=3_650)] = 90  # days until published prompts expire; each sync renews


class LearningConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Automatic feedback for prompt versions."""

    #: Prompts that record the user's next message as feedback. With `all`, automatic rollback compares each new version
    #: with the one before; with `off`, only feedback that a program or user reports counts.
    observe: Literal["all", "off"] = "all"
    #: How an unknown outcome of the task counts in a score: `zero` as a failure, so that 0.8 is the maximum;
    #: `renormalise` not at all, so that the rest of the score counts fully. Scores of both are not comparable.
    missing: Literal["zero", "renormalise"] = "zero"


class ServerConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The HTTP server."""

    host: str = "127.0.0.1"  # other addresses require an API key
    port: Annotated[int, Meta(ge=0, le=65_535)] = 8760  # 0 = any free port
    max_body: Bytes = 8 * 1024 * 1024  # most bytes of a request
    max_v1_body: Bytes = 64 * 1024 * 1024  # most bytes of a request under /v1
    max_post: Bytes = 2 * 1024 * 1024  # most bytes of one message
    max_posts: Count = 20_000  # most posts or messages of a request
    max_attachments: Count = 5_000  # most attachments and parts of a request
    requests_per_minute: Count = 600  # most requests per API key and server; 0 = any number
    bytes_per_minute: Annotated[int, Meta(ge=0, le=1 << 40)] = 100_000_000  # most bytes per API key; 0 = any number
    tokens_per_day: Annotated[int, Meta(ge=0, le=1 << 40)] = 0  # most model tokens per API key and UTC day; 0 = any
    connections: Annotated[int, Meta(ge=10, le=100_000)] = 512  # most open connections, at most half of the file limit
    line: Count = 64  # most queued turns per conversation
    max_calls: Count = 200  # most model calls per request
    stop_timeout_s: Seconds = 30.0  # time for running answers to finish after SIGTERM; then they are interrupted
    log: Literal["none", "requests"] = "none"  # requests: a line of JSON per request, without content
    watchers: Watchers = 100  # most concurrent live views and listening /mcp clients
    watchers_of_key: Watchers = 20  # most of them per API key


class OidcConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Sign-in to the inspector with an OpenID Connect provider."""

    issuer: str = ""  # URL of the provider; "" = sign in with an API key only
    client_id: str = ""  # of this server at the provider
    client_secret_env: str = "OIDC_CLIENT_SECRET"  # noqa: S105  # environment variable of the client's secret, if it has one
    server_url: str = ""  # address of this server in browsers; default: http:// and the address that they call
    scopes: str = "openid profile email"  # scopes to request, separated by spaces
    user_claim: str = "sub"  # claim that names the user
    role_claim: str = "groups"  # claim with a value, or a list of values, that determines the role; a.b = b within a
    roles: str = ""  # roles of its values, the highest one counts, such as "cuebook-admins = admin; staff = editor"
    session_hours: Annotated[float, Meta(gt=0, le=744)] = 8.0  # hours until a user must sign in again


class TracesConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """OpenTelemetry traces."""

    #: otlp: send them to the collector that the variables OTEL_EXPORTER_OTLP_* name; global: use the program's provider
    exporter: Literal["none", "otlp", "global"] = "none"
    content: bool = False  # include queries, prompts and answers, with secrets replaced


class SecretsConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Redaction of secrets."""

    redact: bool = True  # replace secrets before anything is stored
    key_file: str = ""  # file of the key for fingerprints; default: beside the database


class RetentionConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Retention of unused data in days; 0 = forever."""

    conversations_days: Days = 0  # days since the last message
    memories_days: Days = 0  # days since a memory was last stated, repeated or changed


class ConfigSections(Struct, frozen=True, forbid_unknown_fields=True):
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
    sync: SyncConfig = SyncConfig()
    learning: LearningConfig = LearningConfig()
    server: ServerConfig = ServerConfig()
    oidc: OidcConfig = OidcConfig()
    traces: TracesConfig = TracesConfig()
    secrets: SecretsConfig = SecretsConfig()
    retention: RetentionConfig = RetentionConfig()


class Config(Struct, frozen=True):
    """The effective settings. `origins` maps "section.key" to the source of its value; other values are defaults."""

    settings: ConfigSections = ConfigSections()
    origins: Mapping[str, str] = field(default_factory=dict)
    folder: str = "."  # base of relative paths
    compaction_env: Mapping[str, str] = field(default_factory=dict)  # MEMORY_COMPACTION_* (R8)

    def sets(self, place: str) -> bool:
        """Return whether "section.key" is set explicitly, even to its default."""
        return place in self.origins


#: A base URL: no query, no fragment.
_ADDRESS = re.compile(
    r"https?://(?:[^/?#\s]*@)?(?:\[[0-9a-f:.]+\]|[^/?#\s:@\[\]]+)(?::(\d{1,5}))?(/[^?#\s]*)?", re.IGNORECASE
)
_SECRET = re.compile(r"(?<=://).+(?=@)")
#: Environment names that are not CUEBOOK_SECTION_KEY.
ALIASES = {"CUEBOOK_DATABASE_URL": "store.url", "CUEBOOK_KEY_FILE": "secrets.key_file"}
_PREFIX = "CUEBOOK_"
#: CUEBOOK_ variables that are not settings.
_OTHER = frozenset(
    {"CUEBOOK_FAILPOINT", "CUEBOOK_CONFIG", "CUEBOOK_KEY_SECRET", "CUEBOOK_BACKUP_PASSPHRASE", "CUEBOOK_API_KEY"}
)


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
            msg = f"{file_name}: {section!r} is outside a section. Put settings under [section]."
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


@cache
def _known() -> Mapping[str, type]:
    """Return every setting and the type of its default."""
    settings = ConfigSections()
    return {
        f"{section}.{name}": type(getattr(getattr(settings, section), name))
        for section in ConfigSections.__struct_fields__
        for name in getattr(settings, section).__struct_fields__
    }


def _place(name: str, known: Mapping[str, type]) -> str | None:
    if not name.startswith(_PREFIX) or name in _OTHER:
        return None
    place = name.removeprefix(_PREFIX).lower().replace("_", ".", 1)
    if place not in known:
        msg = f"environment {name}: unknown setting {place!r}. Run `cuebook config` to list all settings."
        raise InvalidInput(msg, where=name)
    return place


_BOOLS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
#: The setting whose value may also be a word.
_MAY_BE_BOOL = f"{_PREFIX}MEMORY_USER"


def _from_text(kind: type, text: str, name: str) -> object:
    word = text.strip().lower()
    try:
        if kind is bool or (name == _MAY_BE_BOOL and word in _BOOLS):
            return _BOOLS[word]
        return kind(text)
    except (ValueError, KeyError):
        msg = f"environment {name}: expected {kind.__name__}, got {text!r}"
        raise InvalidInput(msg, where=name) from None


def _convert(values: Mapping[str, Mapping[str, Any]], origins: Mapping[str, str]) -> ConfigSections:
    settings, faults = validate(values, ConfigSections)
    if faults:
        refuse(faults, file=origins.get(faults[0].path) or next(iter(origins.values()), "settings"))
    assert settings is not None  # noqa: S101  # without a fault there is a value
    return settings


def _problems(settings: ConfigSections) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield each invalid address, code or combination, with its settings."""
    budget = settings.budget
    if budget.context <= budget.reply:
        text = f"{budget.context:,} tokens must exceed budget.reply ({budget.reply:,}). Raise it or lower budget.reply."
        yield ("budget.context", "budget.reply"), text
    addresses = {"upstream.url": settings.upstream.url, "model.base_url": settings.model.base_url}
    for place, url in (addresses | {"embedder.base_url": settings.embedder.base_url}).items():
        if (url or place != "upstream.url") and not _is_address(url):
            shown_url = url.partition("://")[0] + "://…" + url.rpartition("@")[2] if "@" in url else url
            yield (place,), f"{shown_url!r} is not a valid URL. Use one like http://127.0.0.1:8080/v1."
    if settings.upstream.shadow and not settings.upstream.url:
        yield ("upstream.shadow", "upstream.url"), "shadow mode needs an upstream. Set upstream.url or --upstream URL."
    yield from _oidc_problems(settings.oidc)
    for code in languages_of(settings.embedder):
        if not re.fullmatch("[a-z]{2,3}", code):
            yield ("embedder.languages",), f'{code!r} is not a language code. Use codes like "en, de", or "" for any.'
    kind, mark, _ = settings.store.url.partition("://")
    if mark and not settings.store.url.startswith(("sqlite:///", *SERVERS)):
        yield ("store.url",), f"{kind!r} databases are not supported. Use a SQLite file or postgresql://."


def _oidc_problems(settings: OidcConfig) -> Iterator[tuple[tuple[str, ...], str]]:
    if not settings.issuer:
        return
    for name, url in (("issuer", settings.issuer), ("server_url", settings.server_url)):
        if url and not is_safe_address(url):
            yield (f"oidc.{name}",), f"{url!r} is not a safe URL. Use https, or http for this machine only."
    if not settings.client_id:
        yield ("oidc.client_id", "oidc.issuer"), "missing. Register this server at the provider."
    for value, role in oidc_roles(settings).items():
        if role not in ("viewer", "editor", "agent", "admin", "owner"):
            yield ("oidc.roles",), f"{role!r} is not the role of {value!r}. Use NAME = ROLE; separate several by ;."


def oidc_roles(settings: OidcConfig) -> dict[str, str]:
    """Return the role of each value of the role claim."""
    pairs = (each.rpartition("=") for each in settings.roles.split(";") if each.strip())
    return {value.strip(): role.strip() for value, _, role in pairs}


def is_safe_address(url: str) -> bool:
    """Return whether a URL uses https, or http to this machine."""
    local = re.match(r"http://(127\.0\.0\.1|localhost|\[::1\])(?=[:/]|$)", url, re.IGNORECASE)
    return _is_address(url) and (local is not None or url.lower().startswith("https://"))


def languages_of(settings: EmbedderConfig) -> frozenset[str]:
    """Return the languages that a server's model supports (ISO 639-1); empty = any."""
    return frozenset(settings.languages.replace(",", " ").split())


def _is_address(url: str) -> bool:
    result = _ADDRESS.fullmatch(url)
    return result is not None and 0 < int(result[1] or 1) <= 65_535


def has_path(url: str) -> bool:
    """Return whether a URL has a path: most servers offer the OpenAI API below a path such as /v1."""
    result = _ADDRESS.fullmatch(url)
    return result is not None and (result[2] or "/").strip("/") != ""


def without_secret(address: str) -> str:
    """Return a URL without its user and password."""
    return _SECRET.sub("***", address)
