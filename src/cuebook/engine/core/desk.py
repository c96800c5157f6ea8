"""Dependencies of the engine: ports, settings and caches, and the prompt-cache simulation of windows."""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, tzinfo
from typing import Any

import msgspec
from msgspec import Struct, field

from cuebook.engine.core.conversation_queue import ConversationQueue
from cuebook.engine.core.drafts import PostFactory
from cuebook.engine.core.foreground_gate import ForegroundGate
from cuebook.engine.core.judgement_cache import Ledgers
from cuebook.errors import NotFound
from cuebook.interfaces.dice import Clock, Dice
from cuebook.interfaces.embedder import Embedder
from cuebook.interfaces.model import Analyzer, Model
from cuebook.interfaces.store import StoredAnswer
from cuebook.memory.profiles import Compaction
from cuebook.memory.scopes import Policy
from cuebook.prompts.presets import NONE as NO_PRESETS
from cuebook.prompts.presets import Presets
from cuebook.prompts.rollback_evidence import Docket
from cuebook.records.digest import digest_of, keyed_digest
from cuebook.records.memory import Dense, Scope
from cuebook.records.persona import Experience, Persona
from cuebook.records.prompt import Version
from cuebook.records.turn import Anchor, Block, Window
from cuebook.signals.profiles import SHIPPED as TRACKING_PROFILES
from cuebook.signals.profiles import Profiles
from cuebook.signals.sentiment import analyzers_of
from cuebook.storage.audit import AuditStore
from cuebook.storage.prompts import PromptStore
from cuebook.storage.store import Store
from cuebook.window.budget import Limits
from cuebook.window.cache import CacheChunk, CacheRule, CacheSimulator
from cuebook.window.tokens import Counter
from cuebook.window.window import MOST_ANCHORS, common_prefix

#: Cached windows for comparison with the next one. Without a cached window, the last one is re-rendered.
REMEMBERED = 64
#: Cached parse results of client messages: clients resend them with every call.
HEARD = 20_000


class Last(Struct, frozen=True):
    """A conversation's last window and simulated provider cache. `digest` is its digest in the manifest."""

    digest: str
    messages: tuple[bytes, ...]
    simulator: CacheSimulator | None = None


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
    """A model's selection of experiences: their ids, or the failure, and the messages to the model for the logs."""

    ids: tuple[str, ...] | None
    by: str
    failed: str = ""
    at: float = 0.0
    messages: tuple[bytes, ...] = ()


class Kinds(Struct, kw_only=True):
    """Class mean vectors of the task classifier, in an embedder's space. `wanted` requests them."""

    space: str = ""
    means: Mapping[str, tuple[float, ...]] = {}
    wanted: bool = False


class ServiceFailure(Struct, kw_only=True):
    """The last error of a service, "" if it works."""

    why: str = ""


class Job(Struct, frozen=True, kw_only=True):
    """A background job: a function that runs it and one that counts due work."""

    name: str
    run: Callable[[], Awaitable[None]]
    due: Callable[[], Awaitable[int]]


#: An Idempotency-Key and the digest of its request.
Key = tuple[str, bytes]
#: Cached facts about a client's message: role, digest, and whether it contains secrets.
Known = tuple[str, bytes, bool]


async def nothing_mirrored() -> bool:
    """Return True: there is no mirror file to erase from."""
    return True


async def nothing_changed() -> None:
    """Do nothing: without a project directory there are no files to check."""


async def nothing_logged(_: Collection[str]) -> bool:
    """Return True: there are no prompt logs to erase from."""
    return True


class Desk(Struct, kw_only=True):
    """All dependencies of a turn. `app` builds one at startup."""

    store: Store
    prompts: PromptStore
    audit: AuditStore
    model: Model
    work_model: Model | None
    clock: Clock
    dice: Dice
    writer: PostFactory
    count: Counter
    limits: Limits
    key: bytes
    personas: Mapping[str, Persona]
    default_persona: str
    persona_waits: bool  # a client's own system text disables the persona unless requested
    compaction: Compaction
    lines: ConversationQueue
    presets: Presets = NO_PRESETS
    profiles: Profiles = TRACKING_PROFILES  # of sentiment tracking
    project: str = ""  # its prompts shadow others of the same name unless the call or conversation names a project
    builtin: Mapping[str, Version] = {}  # shipped prompts by id, used if the database has none
    strategy: str = "epsilon_greedy"
    epsilon: float = 0.2
    observes: str = "all"  # which prompts feedback signals teach: all, off
    rollback: str = "off"  # guarded | sigma | off
    trials: dict[tuple[str, str], TrialCacheEntry] = field(
        default_factory=dict
    )  # cache by slug and branch; the store has all data
    dockets: dict[tuple[str, str], Docket] = field(default_factory=dict)  # likewise
    tunes: bool = True  # apply tuned parameters and go on tuning
    ledgers: Ledgers = field(default_factory=Ledgers)
    lease_s: float = 30.0
    checkpoint_s: float = 2.0
    wait_s: float = 3600.0  # for the results of a turn's tools
    work_patience_s: float = 300.0  # for a model's complete answer in a background job
    memory_policy: Policy = Policy()  # for conversations without a policy of their own
    # likewise, for callers with an API key (A)
    keyed_policy: Policy = Policy(user=True, persona=True, organization=True)
    sinks: tuple[str, ...] = ()  # receivers of each finished pass
    zone: tzinfo = UTC  # default time zone of days
    review_every: int = 6  # turns between two selections of durable memories
    recall: bool = True
    recall_hits: int = 12
    # methods of sentiment by name, except `llm`
    analyzers: Mapping[str, Analyzer] = field(default_factory=analyzers_of)
    embedder: Embedder | None = None
    embed_s: float = 2.0  # for a query's vector; then full text only
    embed_at_once: int = 64  # texts per background call; turns run in between
    failing: ServiceFailure = field(default_factory=ServiceFailure)  # of the embedder
    # current content of their files; None = off
    experiences: Callable[[], Awaitable[Sequence[Experience]]] | None = None
    experience_model: Model | None = None  # selects among them; None = by words and meaning
    experience_s: float = 4.0  # for its selection
    experience_most: int = 3  # in one prompt
    log_prompt: Callable[[Any], None] | None = None  # queues a `prompt_logs.PromptLog` for writing; None = off
    # by erased kinds; returns False while data remains
    erase_logs: Callable[[Collection[str]], Awaitable[bool]] = nothing_logged
    selected: OrderedDict[bytes, ModelSelection] = field(default_factory=OrderedDict)  # latest selections by models
    meant: OrderedDict[tuple[str, str], bytes] = field(default_factory=OrderedDict)  # vectors by space and text
    cache_rule: CacheRule | None = None
    breakpoints: str = "auto"  # auto | on | off: explicit cache breakpoints on the wire
    failpoint: Callable[[str], None] = lambda _: None
    jobs: list[Job] = field(default_factory=list)  # additional background jobs
    foreground: ForegroundGate = field(
        default_factory=ForegroundGate
    )  # turns waiting for a first token, which have priority over jobs
    notify_jobs: Callable[[], None] = lambda: None  # notifies background jobs that work may be due
    last: OrderedDict[tuple[str, str], Last] = field(default_factory=OrderedDict)
    heard: OrderedDict[bytes, Known] = field(default_factory=OrderedDict)
    kinds: Kinds = field(default_factory=Kinds)
    sensed: OrderedDict[str, Dense] = field(default_factory=OrderedDict)  # vectors of the newest queries
    sided: OrderedDict[tuple[str, str], None] = field(default_factory=OrderedDict)  # conversations already logged
    epoch: int = 0  # number of erasures, as far as this process knows
    catch_up: Callable[[], Awaitable[None]] = nothing_changed  # reloads changed persona and preset files
    erase_mirror: Callable[[], Awaitable[bool]] = nothing_mirrored  # returns False while another process locks the file

    def persona(self, name: str | None) -> Persona:
        """Return the named persona, or the default one. Raises NotFound."""
        name = name or self.default_persona
        if name not in self.personas:
            known = ", ".join(sorted(self.personas))
            msg = f"Unknown persona {name!r}. Available: {known}."
            raise NotFound(msg)
        return self.personas[name]

    def request_digest(self, request: bytes) -> bytes:
        """Return a request's stored digest. It is keyed, so that nobody can test guesses of secrets against it."""
        return keyed_digest(request, self.key)

    def keyed_digest_of(self, key: Key | None) -> Key | None:
        """Return an Idempotency-Key in its stored form: a keyed digest, because clients may put data into it."""
        return None if key is None else (keyed_digest(key[0].encode("utf-8", "surrogatepass"), self.key).hex(), key[1])

    async def answered(self, scope: Scope, key: Key) -> StoredAnswer | None:
        """Return the stored answer of an Idempotency-Key."""
        digest = self.keyed_digest_of(key)
        return await self.store.answered(scope, digest[0]) if digest else None

    async def expire(self) -> int:
        """End turns whose lease has expired."""
        return await self.store.expire(now=self.clock.now(), lease_s=self.lease_s, wait_s=self.wait_s)

    def remember(self, place: tuple[str, str], last: Last) -> None:
        """Cache a window for comparison with the next one."""
        self.last[place] = last
        self.last.move_to_end(place)
        while len(self.last) > REMEMBERED:
            self.last.popitem(last=False)

    def first_aside(self, place: tuple[str, str]) -> bool:
        """Return whether this process stores a side request of a conversation for the first time."""
        first = place not in self.sided
        self.sided[place] = None
        while len(self.sided) > REMEMBERED:
            self.sided.popitem(last=False)
        return first

    def see(self, epoch: int) -> None:
        """Drop cached windows from before an erasure by any process."""
        if epoch > self.epoch:
            self.epoch = epoch
            self.last.clear()

    def keep_heard(self, name: bytes, known: Known) -> Known:
        """Cache a parsed message by the digest of its bytes."""
        self.heard[name] = known
        while len(self.heard) > HEARD:
            self.heard.popitem(last=False)
        return known


def prefix_ratio(before: Sequence[bytes] | None, now: Sequence[bytes]) -> float:
    """Return the bytes of the common prefix of two renderings over this one's bytes, 1.0 for the first (INTERFACE,
    Window).
    """
    total = sum(map(len, now))
    if before is None or not total:
        return 1.0
    return round(common_prefix(before, now) / total, 6)


def chunks_of(window: Window, *, tools: str) -> list[CacheChunk]:
    """Return a window as chunks for the cache simulator: tools, system text, each message, volatile text."""
    chunks: list[CacheChunk] = []
    if tools:
        chunks.append(CacheChunk(window.tools_tokens, digest_of(tools.encode()), "tools"))
    front = [block for block in window.blocks if not block.seq and block.role in ("system", "developer")]
    marked = {anchor.after for anchor in window.anchors}
    posts = [block for block in window.blocks if block.seq]
    volatile = [block.tokens for block in window.blocks if block.role == "user" and not block.seq]
    systems = len(window.messages) - len(posts)
    if front and systems:
        chunks += _front_chunks(front, b"".join(window.messages[:systems]), anchors=window.anchors)
    for number, block in enumerate(posts, systems):
        message, splits = block.message, block.kind == "query" and bool(volatile)
        chunks.append(CacheChunk(block.tokens, message, block.role, number in marked, message, not splits))
        if splits:
            chunks.append(CacheChunk(sum(volatile), window.messages[number], "user"))
    return chunks


def _front_chunks(front: Sequence[Block], text: bytes, *, anchors: Sequence[Anchor]) -> Iterator[CacheChunk]:
    """Yield the system text and the summary after it, each with its own cache marker if enough markers are left."""
    tokens = sum(block.tokens for block in front)
    marked = any(anchor.name in ("system", "summary") for anchor in anchors)
    summary = front[-1] if front[-1].kind == "summary" and len(front) > 1 else None
    start = text.rfind(msgspec.json.encode(summary.text)[1:-1]) if summary else 0
    if summary and start > 0:
        first = marked and len(anchors) < MOST_ANCHORS
        yield CacheChunk(tokens - summary.tokens, digest_of(text[:start]), "system", first, text[:start], ends=False)
        text, tokens = text[start:], summary.tokens
    yield CacheChunk(tokens, digest_of(text), "system", marked, text)


def cache_metadata(rule: CacheRule | None, use: Any) -> dict[str, Any]:
    """Return `metadata.window.cache` of a simulated request."""
    if rule is None or use is None:
        return {}
    return {
        "rule": rule.name,
        "readTokens": use.read_tokens,
        "writeTokens": use.write_tokens,
        "cost": round(use.cost, 3),
        "simulated": True,
    }
