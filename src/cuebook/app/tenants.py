"""A book as one tenant with keys sees it: whatever is asked of its store is asked in that tenant's name."""

from collections.abc import Callable
from typing import Any, cast

from msgspec import structs

from cuebook.engine.core.conversation_queue import Lines
from cuebook.engine.core.desk import Desk
from cuebook.ports.store import Store
from cuebook.records.memory import DEFAULT_TENANT, Scope


class Within:
    """A store, or a part of one, for one tenant. Every Scope a call names becomes this tenant's, and proven by a key.

    One place for all methods there are and will be: none can be forgotten.
    """

    def __init__(self, inner: object, tenant: str) -> None:
        self._inner = inner
        self._tenant = tenant

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if callable(found):
            return self._bound(found)
        return found if found is None or isinstance(found, str | int) else Within(found, self._tenant)

    def _bound(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            return method(*map(self._own, given), **{name: self._own(value) for name, value in named.items()})

        return call

    def _own(self, value: Any) -> Any:
        return structs.replace(value, tenant=self._tenant, proven=True) if isinstance(value, Scope) else value


def desk_of(desk: Desk, tenant: str, *, most_waiting: int) -> Desk:
    """Give a desk that works for one tenant: another store, and nothing remembered of other tenants."""
    store = cast("Store", Within(desk.store, tenant))
    lines = desk.lines if tenant == DEFAULT_TENANT else Lines(most_waiting)
    fresh = {"last": type(desk.last)(), "heard": type(desk.heard)(), "trials": {}, "dockets": {}, "epoch": 0}
    return structs.replace(desk, store=store, prompts=store.prompts, audit=store.audit, lines=lines, **fresh)
