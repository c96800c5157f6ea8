"""Show the mood state of conversations and what changed it, run metaprompts (reflections) by hand, and reset it."""

from typing import Annotated

from msgspec import Meta

from cuebook.app.arguments import OWNER, CallerOf, Conversation, IdempotencyKey, User
from cuebook.app.namespace import Namespace, check_first
from cuebook.engine.jobs.reflection import reflect_on
from cuebook.engine.turn.turn_signals import BY_HAND, RESET, may_run, mood_of, signals_to_wire
from cuebook.interfaces.store import MetapromptTask, PathQuery, Scene
from cuebook.operations import Argument, operation
from cuebook.records.answer import as_answer
from cuebook.records.memory import Scope
from cuebook.records.mind import ConversationMood, Reflection, ReflectionEntry, reflection_entry

#: Maximum number of reflections per call.
MOST = 500
_CHANGING = "Changing the mood of another user's conversation"


class MindOf(Namespace):
    """The mood states of a project's conversations."""

    @operation(
        "GET /api/conversations/{conversation}/mind",
        role="viewer",
        cli="mind show",
        examples=("cuebook mind show c1", "cuebook mind show c1 --last 50 --json"),
    )
    async def show(
        self,
        conversation: Conversation,
        *,
        user: User = None,
        limit: Annotated[
            int, Meta(ge=1, le=MOST, description="Show at most N reflections."), Argument(flag="last")
        ] = 20,
    ) -> ConversationMood:
        """Return the mood state of a conversation: mood, user's skill, task complexity, and what changed them.

        Raises NotFound.
        """
        scope, store = Scope(user=user), self._services.store
        reflections = await store.reflections.of(scope, conversation, limit=limit)
        scene = await self._scene(scope, conversation)
        return as_answer(
            ConversationMood,
            mood_of(scene),
            conversation=scene.conversation.id,
            turn=scene.reflection.turn if scene.reflection else 0,
            due=await store.reflections.waiting(scope, conversation),
            reflections=tuple(map(reflection_of, reflections)),
        )

    async def _scene(self, scope: Scope, conversation: str) -> Scene:
        query = PathQuery(conversation=conversation, full_tokens=1, use_summary=False)
        return await self._services.store.scene(scope, query)

    @operation(
        "POST /api/conversations/{conversation}/mind/run",
        role="editor",
        cli="mind run",
        stores=True,
        examples=("cuebook mind run c1 gmi_self_trait_adjustment",),
    )
    async def run(
        self,
        conversation: Conversation,
        metaprompt: Annotated[
            str,
            Meta(min_length=1, description="Metaprompt ID: one of the persona's (`cuebook persona show`) or built-in."),
        ],
        *,
        user: User = None,
        caller: CallerOf = OWNER,
        idempotency_key: IdempotencyKey = None,
    ) -> ConversationMood:
        """Run a metaprompt on the newest turn now, after the conversation's pending jobs.

        While a turn is running, the run is queued (`due`). Raises NotFound, and InvalidInput for an unknown metaprompt
        or a conversation without turns.
        """
        scope = Scope(user=user)
        await check_first(self._services, conversation, user, caller, _CHANGING)
        known = await self._services.store.conversation(scope, conversation)
        may_run(self._services, known, await self._scene(scope, conversation), metaprompt)
        return await self._reflected(scope, conversation, MetapromptTask(metaprompt, BY_HAND))

    @operation(
        "POST /api/conversations/{conversation}/mind/reset",
        role="editor",
        cli="mind reset",
        stores=True,
        examples=("cuebook mind reset c1",),
    )
    async def reset(
        self,
        conversation: Conversation,
        *,
        user: User = None,
        caller: CallerOf = OWNER,
        idempotency_key: IdempotencyKey = None,
    ) -> ConversationMood:
        """Reset the mood state to neutral and keep its history. Raises NotFound, and InvalidInput without turns."""
        await check_first(self._services, conversation, user, caller, _CHANGING)
        return await self._reflected(Scope(user=user), conversation, MetapromptTask("", RESET))

    async def _reflected(self, scope: Scope, conversation: str, call: MetapromptTask) -> ConversationMood:
        await self._services.store.reflections.ask(scope, conversation, [call])
        await reflect_on(self._services, scope, conversation)
        return await self.show(conversation, user=scope.user)


def reflection_of(made: Reflection) -> ReflectionEntry:
    """Return a reflection as an answer."""
    return reflection_entry(made, sentiment=signals_to_wire(made.heard) if made.heard else None)
