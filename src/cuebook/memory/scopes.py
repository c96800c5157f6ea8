"""Decide which memories a conversation may read and write: AgentOS's `longTermMemory` policy, defaults and places.

A request's policy overrides the stored one of the conversation. The host's defaults apply only if none is stored. An
organization is never stored: every request must name it. Statements about a person's private life (body, diet, faith,
money, family, feelings) are never shared with an organization, and are filed as neither decisions nor projects.
"""

import re
from collections.abc import Mapping
from functools import partial
from typing import Any, Final, Literal, get_args

from msgspec import Struct, field, structs

from cuebook.languages import english_expression
from cuebook.records.expression import Expression, lowered
from cuebook.records.key import LongTermMemory
from cuebook.records.memory import CATEGORIES, Category, Place
from cuebook.validate import Document, check

SCOPES: Final = ("conversation", "user", "persona", "organization")
#: Categories of a conversation that may be shared with an organization (A).
SHARED: Final = ("facts", "people", "projects", "decisions")
#: The settings of an organization that has changed none.
SHARING_ALLOWED: Final = LongTermMemory()
#: The owner of the knowledge that was stored without a user, which everybody may read.
PROJECT: Final = Place("project", "")
#: The metadata key of a conversation's stored policy.
KEPT: Final = "longTermMemoryPolicy"
#: The response key under which a turn that asks to share reports whether it does, and why not.
SHARING: Final = "longTermMemorySharing"
#: The metadata key of the organization that a turn was shared with,
SHARED_WITH: Final = "sharedWith"
#: of the API key that shared it (if keys are configured),
SHARED_BY: Final = "sharedBy"
#: of the persona that the turn named,
SPOKEN_WITH: Final = "personaId"
#: and of the first post of the turn, if it has several.
BROUGHT: Final = "broughtFrom"


class Policy(Struct, frozen=True, kw_only=True):
    """The memory that a conversation may read and write. `categories` None = all."""

    enabled: bool = True
    conversation: bool = True
    user: bool = False
    persona: bool = False
    organization: bool = False
    share: bool = False
    items: bool = True
    categories: tuple[str, ...] | None = None

    @property
    def recalls(self) -> bool:
        """Return whether older posts of the same conversation are recalled."""
        return self.enabled and self.conversation


class Participants(Struct, frozen=True, kw_only=True):
    """The participants of a conversation. `alone`: nobody but the user can read it."""

    user: str | None = None
    persona: str = ""
    organization: str | None = None
    alone: bool = True


class PolicyTerms(Struct, frozen=True, kw_only=True):
    """The policy under which a turn was answered. `policy` None: not recorded; `persona` "": the turn named none."""

    policy: Policy | None = None
    persona: str = ""
    shared: str = ""  # the organization that the turn was shared with
    by: str = ""  # the id of the API key that shared it; none if no keys are configured


class _Scopes(Document, frozen=True, kw_only=True):
    conversation: bool | None = None
    user: bool | None = None
    persona: bool | None = None
    organization: bool | None = None


class _LongTermMemory(Document, frozen=True, kw_only=True):
    """A policy as requests and metadata contain it; None = not set."""

    enabled: bool | None = None
    scopes: _Scopes = _Scopes()
    share: bool | None = field(default=None, name="shareWithOrganization")
    items: bool | None = field(default=None, name="storeAtomicDocs")
    categories: tuple[Category, ...] | None = field(default=None, name="allowedCategories")


class _Control(Document, frozen=True, kw_only=True):
    long_term_memory: _LongTermMemory = _LongTermMemory()


def read_control(value: Any) -> dict[str, Any]:
    """Return the fields of a policy that a request's `memoryControl` sets. Raises InvalidInput naming the path."""
    return {} if value is None else _fields(check(value, _Control, "memoryControl").long_term_memory)


def read_policy(value: Any) -> Policy:
    """Return a stored policy. Raises InvalidInput naming the path."""
    return Policy(**_fields(check(value, _LongTermMemory, KEPT)))


def _fields(long_term_memory: _LongTermMemory) -> dict[str, Any]:
    data = structs.asdict(long_term_memory) | structs.asdict(long_term_memory.scopes)
    fields = {name: value for name, value in data.items() if value is not None and name != "scopes"}
    if long_term_memory.categories is not None:
        fields["categories"] = tuple(dict.fromkeys(long_term_memory.categories))
    return fields


def effective(control: Mapping[str, Any], kept: Any, defaults: Policy) -> Policy:
    """Return the effective policy: the request's fields, over the stored ones, over the host's defaults if none is
    stored.
    """
    return structs.replace(read_policy(kept) if isinstance(kept, Mapping) else defaults, **control)


def policy_to_wire(policy: Policy) -> dict[str, Any]:
    """Return a policy in its stored and published form."""
    return {
        "enabled": policy.enabled,
        "scopes": {scope: getattr(policy, scope) for scope in SCOPES},
        "shareWithOrganization": policy.share,
        "storeAtomicDocs": policy.items,
        "allowedCategories": None if policy.categories is None else list(policy.categories),
    }


def read_places(
    policy: Policy, participants: Participants, settings: LongTermMemory = SHARING_ALLOWED
) -> tuple[Place, ...]:
    """Return the places that a conversation may read: the project's, and a user's own if nobody else can read along.

    `settings` are those of the organization, if one is named.
    """
    if not policy.enabled:
        return ()
    places = personal_places(policy, participants) if participants.alone else ()
    places += (PROJECT,) if policy.conversation else ()
    if policy.organization and participants.organization and settings.enabled:
        return (*places, Place("organization", participants.organization))
    return places


def personal_places(policy: Policy, participants: Participants) -> tuple[Place, ...]:
    """Return the user's places that a conversation may write."""
    if not (policy.enabled and policy.items and participants.user):
        return ()
    places = [Place("user", participants.user)] if policy.user else []
    if policy.persona and participants.persona:
        places.append(persona_place(participants.user, participants.persona))
    return tuple(places)


def published_place(
    policy: Policy, participants: Participants, settings: LongTermMemory, *, may_publish: bool
) -> Place | None:
    """Return the organization that a turn may write to: named, enabled, shared with, allowed, with permission."""
    shares = policy.share and not unshared(policy, participants, settings, may_publish=may_publish)
    return Place("organization", participants.organization) if shares and participants.organization else None


def unshared(policy: Policy, participants: Participants, settings: LongTermMemory, *, may_publish: bool) -> str:
    """Return why a turn that asks to share with an organization does not; "" if it does or does not ask."""
    reasons = (
        (not policy.share, ""),
        (not policy.enabled, "memory is disabled: `enabled` is false"),
        (not participants.organization, "the request names no organization"),
        (not policy.organization, "`scopes.organization` is false"),
        (not policy.items, "`storeAtomicDocs` is false"),
        (not may_publish, "the API key may not publish; it needs the role admin or higher"),
        (not (settings.enabled and settings.allow_writes), "the organization's settings do not allow writing"),
    )
    return next((reason for holds, reason in reasons if holds), "")


def told_places(
    policy: Policy, participants: Participants, category: str, settings: Mapping[str, LongTermMemory]
) -> frozenset[Place]:
    """Return the places that posts of a category under a policy may reach. `settings` are those of organizations, by
    id; `whose.organization` is the one that the turn was shared with, with permission.
    """
    of = settings.get(participants.organization or "", SHARING_ALLOWED)
    published = published_place(policy, participants, of, may_publish=True)
    places = (*personal_places(policy, participants), *([published] if published else []))
    return frozenset(each for each in places if category in categories_for(each, policy, of))


def persona_place(user: str, persona: str) -> Place:
    """Return the place of memories that a user and a persona share."""
    return Place("persona", f"{persona}\x1f{user}")


def owner_of(place: Place) -> str | None:
    """Return the user who owns a place, None for shared places."""
    if place.kind == "user":
        return place.id
    return place.id.partition("\x1f")[2] if place.kind == "persona" else None


def categories_for(place: Place, policy: Policy, settings: LongTermMemory = SHARING_ALLOWED) -> frozenset[str]:
    """Return the categories that may be written to a place."""
    allowed = set(CATEGORIES if policy.categories is None else policy.categories)
    if place.kind == "organization":
        allowed &= set(SHARED)
        allowed &= set(SHARED if settings.allowed_categories is None else settings.allowed_categories)
    return frozenset(allowed)


# ---- private statements ---------------------------------------------------------------------------------------------

Matter = Literal["health", "diet", "identity", "money", "contact", "family", "feeling"]

_pattern = partial(english_expression, "private")
#: What somebody may not or cannot do, is, or has.
BOUND: Final = _pattern("bound")
_SOMEBODY: Final = _pattern("somebody")
_NAMED: Final = _pattern("named")
_FAMILY: Final = _pattern("family")
_ALONG: Final = _pattern("along")
_SETTLED: Final = _pattern("settled")
_MYSELF: Final = _pattern("myself")
_MAKES: Final = _pattern("makes")
_THING: Final = _pattern("thing", re.IGNORECASE)
_OTHER: Final = _pattern("other", re.IGNORECASE)
_MATTERS: Final[dict[Matter, Expression]] = {each: _pattern(each) for each in get_args(Matter) if each != "family"}


def matter_of(text: str) -> Matter | None:
    """Return the private topic of a statement, None if it is about a team, a thing, or people in general."""
    lower = lowered(text)
    theirs = _MAKES.search(lower) or (_SETTLED.search(lower) and not _MYSELF.search(lower))
    if not theirs and (_SOMEBODY.search(lower) or _NAMED.search(text)):
        for matter, pattern in _MATTERS.items():
            if pattern.search(lower):
                return matter
    return "family" if _FAMILY.search(_ALONG.sub(" ", lower)) else None


def filed(category: Category, text: str) -> Category:
    """Return the category under which a statement is filed: private statements are never decisions or projects.

    Attributes of other people go to `people`, diets to `preferences`. A statement with a thing's name is not private.
    """
    if category == "people" and _THING.search(text):
        return "facts"
    matter = matter_of(text) if category in {"decisions", "projects", "facts"} else None
    if matter is None:
        return category
    if matter == "family" or _OTHER.search(text) or _NAMED.search(text):
        return "people"
    return "preferences" if matter == "diet" else "facts"
