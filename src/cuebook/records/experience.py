"""Handwritten advice for roles: when it helps, and what it tells them (seed 003)."""

from msgspec import Struct


class Experience(Struct, frozen=True, kw_only=True):
    """One piece of advice: `when` is shown to whoever selects, `what` stands in the prompt if it was selected."""

    exp_id: str
    who: tuple[str, ...] = ()  # roles it is for; none = all
    when: str
    what: str
