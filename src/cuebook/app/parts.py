"""What a book is made of, each part under its name."""

from abc import abstractmethod

from cuebook.app.conversations import Conversations
from cuebook.app.experiences import Experiences
from cuebook.app.forgetting import Receipts
from cuebook.app.keys import Keys
from cuebook.app.memories import Memories
from cuebook.app.memories.conversation_memory import ConversationMemory
from cuebook.app.organizations import Organizations
from cuebook.app.prompts import Prompts
from cuebook.app.prompts.files import PromptFiles
from cuebook.app.proxy.openai_conversations import OpenAIConversations
from cuebook.app.proxy.openai_responses import Responses
from cuebook.app.reports.audit import Audit
from cuebook.app.reports.shadow import ShadowLedger
from cuebook.app.transcript_views.live_view import Live
from cuebook.app.transcript_views.watchers import Looks
from cuebook.app.turns.mood import MindOf
from cuebook.app.turns.optimizer import Optimizer
from cuebook.app.turns.turns import Turns
from cuebook.config import Config
from cuebook.engine.core.desk import Desk
from cuebook.engine.jobs.audit_mirror import Mirror
from cuebook.engine.proxy.shadow import Shadow


class Parts:
    """The parts of an open book."""

    config: Config
    _tenant: str
    _mirror: Mirror | None
    _shadow: Shadow | None
    _looks: dict[int, Looks]

    @property
    @abstractmethod
    def desk(self) -> Desk:
        """What the engine works with; for this package."""

    @property
    def conversations(self) -> Conversations:
        """Transcripts: list, read, move the head, export, delete."""
        return Conversations(self.desk)

    @property
    def turns(self) -> Turns:
        """Turns: show every block of a prompt, replay it."""
        return Turns(self.desk)

    @property
    def responses(self) -> Responses:
        """Answers by their ids on the Responses wire."""
        return Responses(self.desk, most=self.config.settings.server.max_v1_body)

    @property
    def openai_conversations(self) -> OpenAIConversations:
        """Conversations as OpenAI's clients begin, fill and read them."""
        return OpenAIConversations(self.desk)

    @property
    def memories(self) -> Memories:
        """What is remembered across conversations: of users, personas, organizations; and knowledge."""
        return Memories(self.desk)

    @property
    def experiences(self) -> Experiences:
        """The handwritten experiences: which there are, and what a query would get of them."""
        return Experiences(self.desk)

    @property
    def prompts(self) -> Prompts:
        """The prompt book: write, read, render, compare, choose, learn and roll back prompts."""
        return Prompts(self.desk)

    @property
    def audit(self) -> Audit:
        """What was said to the model and why, that nobody changed it, and each render again."""
        return Audit(self.desk, self._mirror)

    @property
    def prompt_files(self) -> PromptFiles:
        """The project's prompts on disk: push, pull, and where they differ from those in the book."""
        return PromptFiles(self.desk, self.config)

    @property
    def keys(self) -> Keys:
        """The keys of the server: make, list, revoke; and who asks with one."""
        return Keys(self.desk, self._tenant)

    @property
    def organizations(self) -> Organizations:
        """The organizations: what each allows in its long-term memory."""
        return Organizations(self.desk, self._tenant)

    @property
    def memory(self) -> ConversationMemory:
        """What is remembered: search, items, the summary."""
        return ConversationMemory(self.desk, self.config)

    @property
    def live(self) -> Live:
        """What goes on: the newest turns, and each change of one as it comes."""
        return Live(self.desk, self.config, self._looks)

    @property
    def mind(self) -> MindOf:
        """The state of mind conversations are in: what moved it, and reflecting by hand."""
        return MindOf(self.desk)

    @property
    def optimizer(self) -> Optimizer:
        """What tunes how much of a conversation stays whole: its runs and what they came to."""
        return Optimizer(self.desk)

    @property
    def shadow(self) -> ShadowLedger:
        """What shadow mode kept: what would have been sent, beside what clients sent."""
        return ShadowLedger(self.desk, self.config, self._shadow)

    @property
    def receipts(self) -> Receipts:
        """The receipts of what was forgotten: read, checked."""
        return Receipts(self.desk)
