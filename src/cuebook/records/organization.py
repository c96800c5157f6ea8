"""Organization settings: what an organization allows in its long-term memory."""

from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType, field

from cuebook.errors import InvalidInput
from cuebook.records.answer import Answer
from cuebook.records.memory import CATEGORIES
from cuebook.validate import check


class LongTermMemory(Struct, frozen=True, kw_only=True, rename="camel"):
    """The kill switches; `allowed_categories` None allows all, () none."""

    enabled: bool = True
    default_retrieval_enabled: bool = True
    allow_writes: bool = True
    allowed_categories: tuple[str, ...] | None = None


class OrganizationMemory(Struct, frozen=True, kw_only=True, rename="camel"):
    """Settings of an organization's memory."""

    long_term_memory: LongTermMemory = field(default_factory=LongTermMemory)


class OrganizationSettings(Answer, frozen=True, kw_only=True):
    """An organization's settings, with defaults."""

    memory: OrganizationMemory = field(default_factory=OrganizationMemory)

    def __str__(self) -> str:
        settings = msgspec.to_builtins(self.memory.long_term_memory)
        allowed = settings.pop("allowedCategories")
        lines = [f"{name}: {str(value).lower()}" for name, value in settings.items()]
        return "\n".join([*lines, f"allowedCategories: {'all' if allowed is None else ', '.join(allowed) or 'none'}"])


class LongTermMemoryChange(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Changes to long-term memory settings; omitted fields stay."""

    enabled: bool | UnsetType = UNSET
    default_retrieval_enabled: bool | UnsetType = UNSET
    allow_writes: bool | UnsetType = UNSET
    allowed_categories: list[str] | UnsetType | None = UNSET


class OrganizationMemoryChange(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Changes to an organization's memory settings."""

    long_term_memory: LongTermMemoryChange = field(default_factory=LongTermMemoryChange)


class OrganizationChange(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Changes to an organization's settings."""

    memory: OrganizationMemoryChange = field(default_factory=OrganizationMemoryChange)


def change_of(value: Any) -> OrganizationChange:
    """Parse a change from plain JSON values. Raises InvalidInput naming the field."""
    return checked(check(value, OrganizationChange, null_is_absent=False))


def checked(change: OrganizationChange) -> OrganizationChange:
    """Check that all categories exist. Raises InvalidInput."""
    wanted = change.memory.long_term_memory.allowed_categories
    for category in wanted if isinstance(wanted, list) else ():
        if category not in CATEGORIES:
            where = "memory.longTermMemory.allowedCategories"
            msg = f"{where}: unknown category {category!r}. Available: {', '.join(CATEGORIES)}."
            raise InvalidInput(msg, where=where)
    return change


def changed(settings: OrganizationSettings, change: OrganizationChange) -> OrganizationSettings:
    """Return the settings with a change applied."""
    wanted = change.memory.long_term_memory
    fields: dict[str, Any] = {
        name: value for name in wanted.__struct_fields__ if (value := getattr(wanted, name)) is not UNSET
    }
    if isinstance(fields.get("allowed_categories"), list):
        fields["allowed_categories"] = tuple(dict.fromkeys(fields["allowed_categories"]))
    memory = msgspec.structs.replace(settings.memory.long_term_memory, **fields)
    return OrganizationSettings(memory=OrganizationMemory(long_term_memory=memory))
