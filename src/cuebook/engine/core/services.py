"""Dependencies of the engine: `Services` (ports), `Settings` (frozen values) and `Caches` (state of this process)."""

import asyncio
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import UTC, tzinfo
from pathlib import Path
from typing import Any, Final, Literal, Protocol, TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from msgspec import Struct, field
from msgspec.structs import replace

from cuebook.config import BudgetConfig, ConfigSections
from cuebook.engine.core.drafts import PostFactory
from cuebook.engine.core.judgement_cache import Ledgers
from cuebook.engine.core.offload import Offload
from cuebook.engine.core.scheduling import ConversationQueue, ForegroundGate
from cuebook.engine.core.tracing import Tracing
from cuebook.errors import InvalidInput, NotFound
from cuebook.interfaces import Analyzer, Clock, Dice, Embedder, Model, Sink
from cuebook.interfaces.store import IdempotencyRecord
from cuebook.memory.rolling import Compaction
from cuebook.memory.scopes import Policy
from cuebook.prompts.presets import Presets
from cuebook.prompts.rollback_evidence import Docket
from cuebook.records.conversation import Conversation, keyed_digest
from cuebook.records.memory import DEFAULT_TENANT, Dense, Scope
from cuebook.records.persona import Experience, Persona
from cuebook.records.prompt import Version
from cuebook.records.turn import Usage, WorkUsage
from cuebook.signals.profiles import SHIPPED as TRACKING_PROFILES
from cuebook.signals.profiles import Profiles
from cuebook.signals.sentiment import analyzers_of
from cuebook.storage.audit import AuditStore
from cuebook.storage.prompts import PromptStore
from cuebook.storage.store import Store
from cuebook.window.cache import CacheSimulator
from cuebook.window.models import CacheRule, ContextSize
from cuebook.window.tokens import Counter

P = TypeVar("P")
K = TypeVar("K")
V = TypeVar("V")
#: Cached windows for comparison with the next one. Without a cached window, the last one is re-rendered.
WINDOWS = 64
#: Cached parse results of client messages: clients resend them with every call.
MESSAGES = 20_000
#: Models and conversations whose token limits are cached.
MODELS = 1_000
#: Cached selections of experiences.
SELECTIONS = 256
#: Cached vectors: the same question yields the same window, and experiences are embedded once.
VECTORS = 8_192


class CachedWindow(Struct, frozen=True):
    """A conversation's last window and simulated provider cache. `digest` is its digest in the manifest."""

    digest: str
    messages: tuple[bytes, ...]
    simulator: CacheSimulator | None = None
    room: int = 0  # most tokens of its posts; 0 = unknown


class OnTrial(Struct, frozen=True, kw_only=True):
    """A new version, its control, and the share of new conversations that get the new one."""

    new: Version
    control: Version
    share: float
    name: str


class TrialCacheEntry(Struct, frozen=True, kw_only=True):
    """A cached trial of a branch, or None for none. `key` is the branch's head, active version and marks."""

    key: tuple[int, int, tuple[int, ...]]
    at: float
    trial: OnTrial | None


class ModelSelection(Struct, frozen=True, kw_only=True):
    """A model's selection of experiences: their ids, or the failure, the messages for the logs, and the usage."""

    ids: tuple[str, ...] | None
    by: str
    failed: str = ""
    at: float = 0.0
    messages: tuple[bytes, ...] = ()
    usages: tuple[WorkUsage, ...] = ()


class Kinds(Struct, kw_only=True):
    """Class mean vectors of the task classifier, in an embedder's space. `wanted` requests them."""

    space: str = ""
    means: Mapping[str, tuple[float, ...]] = {}
    wanted: bool = False


class TokenRatio(Struct, frozen=True):
    """How many tokens a provider counts for one of ours, and how many at least, by its error for a long prompt."""

    value: float
    least: float = 0.0


#: Key of a conversation's time zone in its metadata, and field name on the wire.
TIME_ZONE: Final = "timeZone"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9+-]*(?:[_/][A-Za-z0-9+-]+){0,6}")
#: Zone files that are not places, or that count leap seconds.
_NO_PLACE = ("posix/", "right/", "localtime", "posixrules", "Factory")
_LONGEST: Final = 64
#: An Idempotency-Key and the digest of its request.
Key = tuple[str, bytes]
#: Cached facts about a client's message: role, digest, and whether it contains secrets.
Known = tuple[str, bytes, bool]


# ---- Settings -------------------------------------------------------------------------------------------------------


class Settings(Struct, frozen=True, kw_only=True):
    """Values derived from the configuration and the project's files. A changed file replaces the whole record."""

    limits: BudgetConfig
    sets_context: bool  # `budget.context` applies to all models
    model_url: str  # of the configured model's server; "" without one
    key: bytes
    personas: Mapping[str, Persona]
    default_persona: str
    compaction: Compaction
    profile: str = ""  # chosen while running for all conversations; "" = as configured
    presets: Presets = Presets()
    profiles: Profiles = TRACKING_PROFILES  # of sentiment tracking
    project: str = ""  # its prompts shadow others of the same name unless the call or conversation names a project
    builtin: Mapping[str, Version] = {}  # shipped prompts by id, used if the database has none
    epsilon: float = 0.2
    audit_mirror: Path | None = None  # file; None = no mirror
    key_file: Path | None = None  # of the key, which also has the last checkpoints; None = the key is elsewhere
    tenant: str = DEFAULT_TENANT  # whose services these are
    work_patience_s: float = 300.0  # for a model's complete answer in a background job
    memory_policy: Policy = Policy()  # for conversations without a policy of their own
    # likewise, for callers with an API key (A)
    keyed_policy: Policy = Policy(user=True, persona=True, organization=True)
    zone: tzinfo = UTC  # default time zone of days
    embed_at_once: int  # texts per background call; turns run in between
    cache_rule: CacheRule | None = None

    def persona(self, name: str | None) -> Persona:
        """Return the named persona, or the default one. Raises NotFound."""
        name = name or self.default_persona
        if name not in self.personas:
            known = ", ".join(sorted(self.personas))
            msg = f"Unknown persona {name!r}. Available: {known}."
            raise NotFound(msg)
        return self.personas[name]

    def zone_of(self, label: str | None, conversation: Conversation | None) -> tzinfo:
        """Return the time zone of a request: its own, else the conversation's, else the project's.

        A stored name unknown to this machine is ignored. Raises InvalidInput.
        """
        if label is not None:
            return read_zone(label)
        name = conversation.metadata.get(TIME_ZONE) if conversation else None
        try:
            return self.zone if name is None else read_zone(name)
        except InvalidInput:
            return self.zone

    def request_digest(self, request: bytes) -> bytes:
        """Return a request's stored digest. It is keyed, so that nobody can test guesses of secrets against it."""
        return keyed_digest(request, self.key)

    def keyed_digest_of(self, key: Key | None) -> Key | None:
        """Return an Idempotency-Key in its stored form: a keyed digest, because clients may put data into it."""
        return None if key is None else (keyed_digest(key[0].encode("utf-8", "surrogatepass"), self.key).hex(), key[1])


def read_zone(name: object, where: str = TIME_ZONE) -> tzinfo:
    """Return the time zone of a name. Raises InvalidInput naming the field."""
    if isinstance(name, str) and len(name) <= _LONGEST and _NAME.fullmatch(name) and not name.startswith(_NO_PLACE):
        try:
            return UTC if name == "UTC" else ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            pass  # the name is a directory
    msg = f"{where}: unknown time zone {name!r:.80}. Use an IANA name such as Europe/Amsterdam, or UTC."
    raise InvalidInput(msg, where=where)


# ---- Caches ---------------------------------------------------------------------------------------------------------


class LruCache(OrderedDict[K, V]):
    """A dictionary that holds at most `most` entries: setting one more evicts the least recently set one.

    Threads may set entries at the same time.
    """

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def __setitem__(self, key: K, value: V) -> None:
        self.pop(key, None)
        super().__setitem__(key, value)
        if len(self) > self._most:
            self.popitem(last=False)


class Caches(Struct, kw_only=True):
    """State of this process. The store has all data: without a cache a turn is slower, not different."""

    # The last window of a conversation, by tenant and id.
    windows: LruCache[tuple[str, str], CachedWindow] = field(default_factory=lambda: LruCache(WINDOWS))
    # Parse results of client messages, by the digest of their bytes.
    messages: LruCache[bytes, Known] = field(default_factory=lambda: LruCache(MESSAGES))
    # Conversations whose side branch was logged, by tenant and id.
    side_requests: LruCache[tuple[str, str], None] = field(default_factory=lambda: LruCache(WINDOWS))
    # Context windows that errors named, by URL and model.
    contexts: LruCache[tuple[str, str], ContextSize] = field(default_factory=lambda: LruCache(MODELS))
    has_responses: dict[str, bool] = field(default_factory=dict)  # whether an upstream has the Responses API, by URL
    listed_contexts: dict[tuple[str, str], int] = field(default_factory=dict)  # of upstreams, by URL and model
    # How providers count tokens, by model and conversation.
    token_ratios: LruCache[tuple[str, str], TokenRatio] = field(default_factory=lambda: LruCache(MODELS))
    has_ratios: bool = False  # those of earlier processes are loaded
    trials: dict[tuple[str, str], TrialCacheEntry] = field(default_factory=dict)  # by slug and branch
    evidence: dict[tuple[str, str], Docket] = field(default_factory=dict)  # likewise
    judgements: Ledgers = field(default_factory=Ledgers)
    # Selections of experiences by models, by the digest of the request.
    selections: LruCache[bytes, ModelSelection] = field(default_factory=lambda: LruCache(SELECTIONS))
    vectors: LruCache[str, Dense] = field(default_factory=lambda: LruCache(VECTORS))  # by text: queries and experiences
    task_means: Kinds = field(default_factory=Kinds)
    failures: dict[Literal["embedder", "upstream"], str] = field(default_factory=dict)  # the last errors of services
    epoch: int = 0  # number of erasures, as far as this process knows
    #: Mark, backlog and mode of conversations whose summary would not be smaller than its text, by tenant and id.
    refused_passes: dict[tuple[str, str], tuple[int, int, str]] = field(default_factory=dict)
    lease_conflicts: int = 0  # turns that another request or process overtook, counted for the metrics
    late_ends: set[asyncio.Task[int]] = field(default_factory=set)  # store answers once the database answers again
    recall_retry_at: float = 0.0  # when a recall model that failed is called again
    optimizer_idle_at: float = 0.0  # when the optimizer last found nothing due
    progress: dict[type, Any] = field(default_factory=dict)  # of background jobs, by its type

    def progress_of(self, kind: type[P]) -> P:
        """Return the progress of a background job in this process, new at first."""
        progress: P = self.progress.setdefault(kind, kind())
        return progress

    def for_tenant(self) -> "Caches":
        """Return the caches of another tenant: those of data are empty, those of texts and models are shared."""
        return replace(
            self,
            windows=LruCache(WINDOWS),
            messages=LruCache(MESSAGES),
            token_ratios=LruCache(MODELS),
            has_ratios=False,
            trials={},
            evidence={},
            epoch=0,
        )

    def drop_erased(self, epoch: int) -> None:
        """Drop cached windows from before an erasure by any process."""
        if epoch > self.epoch:
            self.epoch = epoch
            self.windows.clear()


# ---- Services -------------------------------------------------------------------------------------------------------


async def nothing_changed() -> None:
    """Do nothing: without a project directory there are no files to check."""


async def nothing_restored(_: str) -> None:
    """Do nothing: prompts have no files."""


async def nothing_logged(_: Collection[str]) -> bool:
    """Return True: there are no prompt logs to erase from."""
    return True


class WatchedFolder(Protocol):
    """The folder whose files show the memories of the project."""

    async def is_due(self, *, hurry: bool = False) -> bool:
        """Return whether files or memories may have changed. With `hurry`, also files that may be half written."""

    async def sync(self, *, hurry: bool = False) -> bool:
        """Push and pull what changed. Return whether anything did."""

    async def erase(self) -> bool:
        """Remove erased memories from the files. Return False while any may be left."""

    def remains(self) -> str:
        """Return where copies of the files may be, "" for nowhere."""


async def no_logs(*_: Any) -> dict[str, bytes]:
    """Return nothing: there are no prompt logs."""
    return {}


class Services(Struct, kw_only=True):
    """The ports of a turn, with its settings and caches. `app` builds one per tenant."""

    store: Store
    prompts: PromptStore
    audit: AuditStore
    model: Model
    work_model: Model | None
    clock: Clock
    dice: Dice
    writer: PostFactory
    count: Counter
    queue: ConversationQueue
    config: ConfigSections
    settings: Settings
    caches: Caches = field(default_factory=Caches)
    embedder: Embedder | None = None
    experience_model: Model | None = None  # selects among experiences; None = by words and meaning
    recall_model: Model | None = None  # rewrites and ranks searches; None = without a model
    # methods of sentiment by name, except `llm`
    analyzers: Mapping[str, Analyzer] = field(default_factory=analyzers_of)
    cost_of: Callable[[str, Usage], dict[str, float]] = lambda *_: {}  # of a call of a model, by currency
    foreground: ForegroundGate = field(default_factory=ForegroundGate)  # calls that jobs wait for
    tracing: Tracing = field(default_factory=Tracing)
    offload: Offload = field(default_factory=Offload)
    wakeup: asyncio.Event = field(default_factory=asyncio.Event)  # set when a background job may be due
    sinks: Mapping[str, Sink] = {}  # receivers of each finished pass, by name
    failpoint: Callable[[str], None] = lambda _: None
    # The project's files:
    experiences: Callable[[], Awaitable[Sequence[Experience]]] | None = None  # their current content; None = off
    catch_up: Callable[[], Awaitable[None]] = nothing_changed  # reloads changed persona and preset files
    log_prompt: Callable[[Any, int], None] | None = None  # queues an `OpenStep` with its reply's seq; None = off
    restore_file: Callable[[str], Awaitable[None]] = nothing_restored  # writes a prompt's files after a rollback
    # by erased kinds; returns False while data remains
    erase_logs: Callable[[Collection[str]], Awaitable[bool]] = nothing_logged
    read_logs: Callable[[str, int], Awaitable[dict[str, bytes]]] = no_logs  # by a conversation's id and number
    memory_folder: WatchedFolder | None = None
    other_tenant: Callable[[str], "Services"] | None = None  # returns the services of a tenant by name

    def of(self, tenant: str) -> "Services":
        """Return the services of a tenant."""
        return self if self.other_tenant is None or tenant == DEFAULT_TENANT else self.other_tenant(tenant)

    def notify_jobs(self) -> None:
        """Wake the background worker: work may be due."""
        self.wakeup.set()

    async def idempotency_record(self, scope: Scope, key: Key) -> IdempotencyRecord | None:
        """Return what an Idempotency-Key was used for, None for a new key."""
        digest = self.settings.keyed_digest_of(key)
        return await self.store.idempotency_record(scope, digest[0]) if digest else None

    async def expire(self) -> int:
        """End turns whose lease has expired."""
        work = self.config.work
        return await self.store.expire(now=self.clock.now(), lease_s=work.lease_s, wait_s=work.wait_s)
