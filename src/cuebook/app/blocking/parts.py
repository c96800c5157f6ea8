"""Made by scripts/blocking.py from `cuebook.app.book`: `scripts/check --fix` makes it anew."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cuebook.app.blocking.audit import BlockingAudit
from cuebook.app.blocking.conversations import BlockingConversations
from cuebook.app.blocking.experiences import BlockingExperiences
from cuebook.app.blocking.holds import BlockingHolds
from cuebook.app.blocking.host import Host
from cuebook.app.blocking.keys import BlockingKeys
from cuebook.app.blocking.memories import BlockingMemories
from cuebook.app.blocking.memory import BlockingMemory
from cuebook.app.blocking.mind import BlockingMindOf
from cuebook.app.blocking.optimizer import BlockingOptimizer
from cuebook.app.blocking.organizations import BlockingOrganizations
from cuebook.app.blocking.prompt_files import BlockingPromptFiles
from cuebook.app.blocking.prompts import BlockingPrompts
from cuebook.app.blocking.receipts import BlockingReceipts
from cuebook.app.blocking.shadow import BlockingShadowLedger
from cuebook.app.blocking.turns import BlockingTurns
from cuebook.app.blocking.vault import BlockingVault
from cuebook.app.book import Reply
from cuebook.app.feedback import Thumb
from cuebook.engine.drafts import Posted
from cuebook.engine.turn import Chunk
from cuebook.ports.store import Appended
from cuebook.records.outcome import Known
from cuebook.records.prompt import TaskOutcome
from cuebook.records.turn import Ask, Window


class BlockingParts:
    """What a blocking book does, and its parts."""

    _host: Host

    @property
    def conversations(self) -> BlockingConversations:
        """Transcripts: list, read, move the head, export, delete."""
        return BlockingConversations(self._host)

    @property
    def turns(self) -> BlockingTurns:
        """Turns: show every block of a prompt, replay it."""
        return BlockingTurns(self._host)

    @property
    def memories(self) -> BlockingMemories:
        """What is remembered across conversations: of users, personas, organizations; and knowledge."""
        return BlockingMemories(self._host)

    @property
    def experiences(self) -> BlockingExperiences:
        """The handwritten experiences: which there are, and what a query would get of them."""
        return BlockingExperiences(self._host)

    @property
    def prompts(self) -> BlockingPrompts:
        """The prompt book: write, read, render, compare, choose, learn and roll back prompts."""
        return BlockingPrompts(self._host)

    @property
    def audit(self) -> BlockingAudit:
        """What was said to the model and why, that nobody changed it, and each render again."""
        return BlockingAudit(self._host)

    @property
    def prompt_files(self) -> BlockingPromptFiles:
        """The project's prompts on disk: push, pull, and where they differ from those in the book."""
        return BlockingPromptFiles(self._host)

    @property
    def keys(self) -> BlockingKeys:
        """The keys of the server: make, list, revoke; and who asks with one."""
        return BlockingKeys(self._host)

    @property
    def organizations(self) -> BlockingOrganizations:
        """The organizations: what each allows in its long-term memory."""
        return BlockingOrganizations(self._host)

    @property
    def vault(self) -> BlockingVault:
        """What is kept sealed of the secrets in posts: counts, values for the owner, another key."""
        return BlockingVault(self._host)

    @property
    def memory(self) -> BlockingMemory:
        """What is remembered: search, items, the summary."""
        return BlockingMemory(self._host)

    @property
    def mind(self) -> BlockingMindOf:
        """The state of mind conversations are in: what moved it, and reflecting by hand."""
        return BlockingMindOf(self._host)

    @property
    def optimizer(self) -> BlockingOptimizer:
        """What tunes how much of a conversation stays whole: its runs and what they came to."""
        return BlockingOptimizer(self._host)

    @property
    def shadow(self) -> BlockingShadowLedger:
        """What shadow mode kept: what would have been sent, beside what clients sent."""
        return BlockingShadowLedger(self._host)

    @property
    def receipts(self) -> BlockingReceipts:
        """The receipts of what was forgotten: read, checked."""
        return BlockingReceipts(self._host)

    @property
    def holds(self) -> BlockingHolds:
        """The legal holds: what must not be forgotten yet."""
        return BlockingHolds(self._host)

    def ask(self, ask: Ask) -> Reply:
        """Answer. The query is durable before the model is asked, the answer before this returns."""
        return self._host.run(lambda book: book.ask(ask))

    def stream(self, ask: Ask) -> Iterator[Chunk]:
        """Answer piece by piece: METADATA_UPDATE, text_delta…, final_response. Stop early and what came stays."""
        return self._host.iterate(lambda book: book.stream(ask))

    def assemble(self, ask: Ask, *, reveal: bool = False) -> Window:
        """Build the prompt an ask would get; nothing is stored. `reveal`: for your model, with what the vault keeps."""
        return self._host.run(lambda book: book.assemble(ask, reveal=reveal))

    def assemble_with_metadata(self, ask: Ask) -> tuple[Window, dict[str, Any]]:
        """Give the same, with the reply's `metadata`."""
        return self._host.run(lambda book: book.assemble_with_metadata(ask))

    def append(
        self,
        conversation: str,
        posts: Sequence[Posted | Mapping[str, Any]],
        *,
        user: str | None = None,
        persona: str | None = None,
        parent: str | None = None,
        idempotency_key: str | None = None,
        time_zone: str | None = None,
    ) -> Appended:
        """Store posts made elsewhere, all or none: Posted records, or OpenAI chat messages as mappings.
        `parent` is the post they follow: the head unless given, none if empty; `time_zone` (IANA) whose days they are.
        """
        return self._host.run(
            lambda book: book.append(
                conversation,
                posts,
                user=user,
                persona=persona,
                parent=parent,
                idempotency_key=idempotency_key,
                time_zone=time_zone,
            )
        )

    def feedback(
        self,
        conversation: str,
        n: int,
        *,
        score: float | None = None,
        thumb: Thumb | None = None,
        outcome: TaskOutcome | None = None,
        corrections: int | None = None,
        comment: str = "",
        user: str | None = None,
        idempotency_key: str | None = None,
    ) -> Known:
        """Say how a turn was, in the place of what its user's next message says: `turns.feedback`."""
        return self._host.run(
            lambda book: book.feedback(
                conversation,
                n,
                score=score,
                thumb=thumb,
                outcome=outcome,
                corrections=corrections,
                comment=comment,
                user=user,
                idempotency_key=idempotency_key,
            )
        )

    def settle(self, *, conversation: str | None = None, timeout: float = 60.0) -> dict[str, int]:
        """Wait until nothing is due; answers with what is still due by kind, empty when settled.

        Kinds: `compaction` (conversations), `observation` (turns to learn from), `rollback` (prompts to judge),
        `reflection` (turns to reflect on), `embedding` (posts), `retention` (conversations too old), `forget` (receipts
        to be signed), `audit` (records its mirror lacks). `optimizer` counts conversations to tune.
        """
        return self._host.run(lambda book: book.settle(conversation=conversation, timeout=timeout))

    def work(self) -> int:
        """Do once what is due behind the replies now, as the worker would; answers with how much was done."""
        return self._host.run(lambda book: book.work())

    @property
    def upstream_url(self) -> str | None:
        """The upstream's address, None without one."""
        return self._host.read(lambda book: book.upstream_url)

    @property
    def shadows(self) -> bool:
        """Whether the OpenAI wire passes as it comes, and what would have been sent is kept beside it."""
        return self._host.read(lambda book: book.shadows)

    @property
    def personas(self) -> list[str]:
        """Ids of the personas."""
        return self._host.read(lambda book: book.personas)

    def warm_up(self) -> None:
        """Have an embedder answer once, so that no query waits for its loading; `check` says if it fails."""
        self._host.run(lambda book: book.warm_up())

    def check(self) -> dict[str, Any]:
        """Whether store and model are ready, and what they are."""
        return self._host.run(lambda book: book.check())
