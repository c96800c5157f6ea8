"""When what a conversation has tuned takes effect in its windows: where the front of a prompt changes anyway.

A later step of a round is decided as its first one was. A new round is decided with what was in force before; only if
that changes what stood before its new posts (another summary, another cut), so that a provider's cache is lost anyway,
it is decided anew with what is tuned by now. Nothing of it but the last turn's metadata is kept.
"""

from cuebook.assembly.marked import in_force, moves, newest
from cuebook.engine.desk import Desk
from cuebook.engine.plan import Planned, Wish, plan
from cuebook.ports.store import Scene
from cuebook.records.turn import Turn


def plan_tuned(desk: Desk, scene: Scene, wish: Wish, *, turn: int, goes_on: Turn | None) -> Planned:
    """Decide a step's window with the conversation's tuning. Raises InvalidInput as `plan` does."""
    before = in_force(scene.tuning, goes_on.metadata if goes_on else scene.told)
    now = newest(scene.tuning) if desk.tunes else newest(None)
    if goes_on is None and scene.previous is None:
        before = now
    planned = plan(scene, wish, turn=turn, limits=desk.limits, count=desk.count, key=desk.key, marks=before)
    if goes_on is not None or now.run == before.run or scene.previous is None:
        return planned
    if not moves(scene.previous, planned.remembered.manifest):
        return planned
    return plan(scene, wish, turn=turn, limits=desk.limits, count=desk.count, key=desk.key, marks=now)
