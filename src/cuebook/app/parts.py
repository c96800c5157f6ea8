"""The namespaces of the public API, such as `cue.conversations` and `cue.prompts`."""

from abc import abstractmethod

from cuebook.app.conversations import Conversations
from cuebook.app.experiences import Experiences
from cuebook.app.keys import Keys
from cuebook.app.memories.search import Memories
from cuebook.app.organizations import Organizations
from cuebook.app.personas import Personas
from cuebook.app.prompts.files import ProjectPrompts
from cuebook.app.proxy.openai_conversations import OpenAIConversations
from cuebook.app.proxy.openai_responses import Responses
from cuebook.app.reports.audit import Audit
from cuebook.app.reports.shadow import ShadowCalls
from cuebook.app.transcript_views.live import Live, LiveReader
from cuebook.app.turns.mood import MindOf
from cuebook.app.turns.optimizer import Optimizer
from cuebook.app.turns.turns import Turns
from cuebook.config import Config
from cuebook.engine.core.services import Services
from cuebook.engine.proxy.shadow import Shadow
from cuebook.interfaces import Upstream
from cuebook.records.memory import DEFAULT_TENANT


class Parts:
    """The namespaces of an open project."""

    config: Config
    _tenant: str
    _tenants: dict[str, Services]
    _project: Services | None
    _shadow: Shadow | None
    _upstream: Upstream | None
    _live_readers: dict[int, LiveReader]

    @property
    @abstractmethod
    def services(self) -> Services:
        """The engine's dependencies; internal to this package."""

    @property
    def conversations(self) -> Conversations:
        """Conversations: list, read, move the head, export, delete."""
        return Conversations(self.services)

    @property
    def turns(self) -> Turns:
        """Turns: show every block of a prompt and its source, replay it, give feedback."""
        return Turns(self.services)

    @property
    def responses(self) -> Responses:
        """Stored answers of the OpenAI Responses API, by id."""
        return Responses(self.services, self._upstream, most=self.config.settings.server.max_v1_body)

    @property
    def openai_conversations(self) -> OpenAIConversations:
        """Conversations of the OpenAI Conversations API: create, add items, read."""
        return OpenAIConversations(self.services)

    @property
    def persona(self) -> Personas:
        """Personas: list and show them as their files currently define them."""
        return Personas(self.services)

    @property
    def experiences(self) -> Experiences:
        """Handwritten experiences (few-shot examples): list them, and show the selection for a query."""
        return Experiences(self.services)

    @property
    def prompts(self) -> ProjectPrompts:
        """Managed prompts: write, read, render, compare, select, learn and roll back versions."""
        return ProjectPrompts(self.services, self.config)

    @property
    def audit(self) -> Audit:
        """The audit log: what was sent to the model and why, integrity checks, and replays of each prompt."""
        return Audit(self.services)

    @property
    def keys(self) -> Keys:
        """API keys of the server: create, list, revoke, authenticate."""
        return Keys(self.services, self._tenant)

    @property
    def organizations(self) -> Organizations:
        """Organizations: what each allows in its long-term memory."""
        return Organizations(self.services, self._tenant)

    @property
    def memory(self) -> Memories:
        """The memory of a project: search, add, list, correct and forget memories; knowledge, items and summaries."""
        return Memories(self.services, self.config)

    @property
    def live(self) -> Live:
        """Live view: the newest turns, and a stream of their changes."""
        return Live(self.services, self.config, self._live_readers)

    @property
    def mind(self) -> MindOf:
        """The mood state of conversations: show what changed it, run a metaprompt, reset."""
        return MindOf(self.services)

    @property
    def optimizer(self) -> Optimizer:
        """The optimizer, which tunes how much of a conversation is kept verbatim: run it, show its history."""
        return Optimizer(self.services)

    @property
    def shadow(self) -> ShadowCalls:
        """Figures of each summarization profile on own traffic, and the records of shadow mode."""
        own = self._project if self._tenant == DEFAULT_TENANT else None
        peers = [each for each in (own, self._tenants.get(self._tenant)) if each is not None]
        return ShadowCalls(self.services, self.config, self._shadow, self.memory.search, peers=peers)
