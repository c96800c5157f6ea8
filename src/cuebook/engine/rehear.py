"""A message heard anew behind the reply, where a persona's method is to ask a model how it sounds.

Until the model has answered the lexicon's word stands and nothing fires. Where it cannot be asked, or does not answer
as it must, the lexicon's word stays, and fires.
"""

import logging

import msgspec

from cuebook.engine.desk import Desk
from cuebook.engine.heard import counters_on, heard_of
from cuebook.engine.instruct import Work, instruct, told
from cuebook.engine.saying import said_by
from cuebook.errors import BackendError, InvalidInput
from cuebook.ports.model import ModelRequest
from cuebook.ports.reflections import Reflecting
from cuebook.ports.store import Look, Scene
from cuebook.prompts.names import project_of
from cuebook.records.audit import Record
from cuebook.records.memory import Scope
from cuebook.records.mind import Counters, Heard, Sentiment
from cuebook.records.tracking import Tracking
from cuebook.signals.hear import hear
from cuebook.signals.judged import SCHEMA, asked, parse_reply

log = logging.getLogger("cuebook.reflect")

#: The prompt a model is told that judges a message, and who the audit says was told.
KEY = "sentiment_llm"
LISTENER = "sentiment"
#: Tokens an answer may take: it is one short object.
ANSWER = 200


async def reheard(
    desk: Desk, scope: Scope, read: Reflecting, scene: Scene, tracking: Tracking
) -> tuple[Heard, tuple[Record, ...]]:
    """Give what was heard in a turn as a model judges it, with the audit's records. `scene` ends with its message."""
    first = heard_of(read.turn.metadata) or Heard()
    text = (scene.path[-1].message or "") if scene.path else ""
    sentiment, records = await _judged(desk, scope, read, tracking, text)
    before = await _before(desk, scope, read, scene)
    news = first.counters.news
    trace = first.counters.trace[-news:] if news else ()
    found = hear(
        text,
        before=before,
        sentiment=sentiment or first.sentiment,
        tracking=tracking,
        trace=trace,
        now=first.counters.at,
        drift=first.signals.get("topic_shift_high"),
        kind=first.task,
    )
    return found, records


async def _judged(
    desk: Desk, scope: Scope, read: Reflecting, tracking: Tracking, text: str
) -> tuple[Sentiment | None, tuple[Record, ...]]:
    """Ask the model; None where it does not say."""
    model = desk.work_model
    if model is None or not text.strip():
        return None, ()
    project = project_of(None, read.conversation.metadata.get("project"), desk.project)
    work = Work(agent=LISTENER, key=KEY, otherwise=KEY, values={}, project=project)
    instruction = await instruct(desk, scope, work)
    records = (told(desk, instruction, work, conversation=read.conversation.id),)
    request = ModelRequest(
        messages=(
            msgspec.json.encode({"role": "system", "content": instruction.text}),
            msgspec.json.encode({"role": "user", "content": asked(text)}),
        ),
        purpose=LISTENER,
        schema=SCHEMA,
        max_tokens=ANSWER,
        temperature=0.0,
        model=tracking.model_id,
    )
    try:
        return parse_reply(await said_by(desk, model, request)), records
    except (BackendError, InvalidInput) as error:
        log.warning("the lexicon's word on %s stays: %s", read.conversation.id, desk.writer.clean(str(error)))
        return None, records


async def _before(desk: Desk, scope: Scope, read: Reflecting, scene: Scene) -> Counters:
    """Give what the messages before this one left behind, as a model judged them where it did."""
    parent = scene.path[-2].seq if len(scene.path) > 1 else 0
    if not parent:
        return Counters()
    look = Look(conversation=read.conversation.id, parent=parent, full_tokens=1, use_summary=False)
    return counters_on(await desk.store.scene(scope, look))
