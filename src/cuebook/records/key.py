"""API keys, roles and permissions (authentication and authorization), and the settings of organizations.

A key has the form `cue_ID_SECRET`: ID names it in lists, SECRET is 256 bits in base62. Only a keyed digest is stored.
"""

import hashlib
import hmac
import re
from typing import Any, ClassVar, Final, Literal, get_args

import msgspec
from msgspec import UNSET, Struct, UnsetType, field

from cuebook.errors import Denied, InvalidInput, NotFound
from cuebook.records.answer import Answer, Time, as_answer
from cuebook.records.memory import CATEGORIES, DEFAULT_TENANT

Role = Literal["viewer", "editor", "agent", "admin", "owner"]
#: Each role includes those before it. Viewers read; editors write prompts and posts, and ask; agents act for any user
#: of the tenant; admins publish, roll back, read the audit log and configure their organizations; owners do everything.
ROLES: Final[tuple[Role, ...]] = get_args(Role)
#: Roles whose key belongs to one user (INTERFACE, Who).
OF_ONE_USER: Final = ("viewer", "editor")

SECRET_BYTES: Final = 32
DAY_S: Final = 86_400
PREFIX: Final = "cue_"
_DIGITS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_LENGTH: Final = 43  # 62^43 > 2^256
_TOKEN: Final = re.compile(r"cue_([0-9A-Za-z-]{1,64})_[0-9A-Za-z]{43}")
#: Separates digests of API keys from other digests under the project's key.
_DOMAIN: Final = b"cuebook api key v1\n"


class Key(Struct, frozen=True, kw_only=True):
    """An API key without its secret. Times are Unix seconds; without `expires_at` it is valid until revoked."""

    id: str
    role: Role
    user: str | None = None
    organizations: tuple[str, ...] = ()
    name: str = ""
    tenant: str = DEFAULT_TENANT
    created_at: float = 0.0
    expires_at: float | None = None
    revoked_at: float | None = None
    spent_on: int = 0  # the last day on which it spent tokens, counted from 1970 in UTC
    tokens_spent: int = 0  # on that day

    def tokens_on(self, day: int) -> int:
        """Return how many tokens it has spent on a day, as far as they are counted."""
        return self.tokens_spent if self.spent_on == day else 0

    def state(self, now: float) -> Literal["valid", "expired", "revoked"]:
        """Return whether the key is active, expired or revoked at a time."""
        if self.revoked_at is not None:
            return "revoked"
        return "expired" if self.expires_at is not None and self.expires_at <= now else "valid"

    def may_tell(self, organization: str, now: float) -> bool:
        """Return whether the key may write to an organization's memory at a time."""
        caller = Caller(role=self.role, organizations=self.organizations)
        return self.state(now) == "valid" and caller.may("admin") and caller.belongs_to(organization)


class KeyEntry(Answer, frozen=True, kw_only=True):
    """An API key without its secret, and its state."""

    COLUMNS: ClassVar = ("id", "role", "user_id", "organizations", "name", "state", "expires_at", "tokens_today")

    id: str
    role: Role
    tenant: str
    user_id: str | None
    organizations: tuple[str, ...]
    name: str
    state: Literal["valid", "expired", "revoked"]
    created_at: Time
    expires_at: Time | None
    revoked_at: Time | None
    tokens_today: int  # counted only with `server.tokens_per_day`

    def __str__(self) -> str:
        return f"{self.state} {self.id}"


class NewKey(KeyEntry, frozen=True, kw_only=True):
    """A new key and its token. The token is returned only here and never stored."""

    token: str


def key_entry(key: Key, *, now: float) -> KeyEntry:
    """Return a key as an answer."""
    return as_answer(
        KeyEntry, key, user_id=key.user, state=key.state(now), tokens_today=key.tokens_on(int(now // DAY_S))
    )


def unknown_key(key: str) -> NotFound:
    """Return the error for an unknown key, and for one of another tenant."""
    return NotFound(f"Unknown key {key!r}. Run `cuebook key list` to list keys.")


class Caller(Struct, frozen=True, kw_only=True):
    """The authenticated caller. Without `key` no keys are configured, and the caller is the machine's owner."""

    role: Role = "owner"
    tenant: str = DEFAULT_TENANT
    user: str | None = None
    organizations: tuple[str, ...] = ()
    key: str = ""

    def may(self, role: Role) -> bool:
        """Return whether the caller has this role or a higher one."""
        return ROLES.index(self.role) >= ROLES.index(role)

    def need(self, role: Role, what: str = "this") -> None:
        """Check the caller's role. Raises Denied."""
        if not self.may(role):
            msg = f"{what} requires a key with role {role} or higher. This key has role {self.role}."
            raise Denied(msg)

    def acts_as(self, *named: str | None) -> str | None:
        """Return the acting user: the key's own, else the first of `named` that is not empty.

        Raises Denied if a key of one user is used with the name of another.
        """
        values = [name for name in named if name]
        if self.user is None:
            return values[0] if values else None
        if any(name != self.user for name in values):
            msg = "userId: this key belongs to one user and cannot act for others. Omit the user."
            raise Denied(msg)
        return self.user

    def check_organization(self, organization: str | None) -> None:
        """Check that an organization is the caller's. Raises NotFound, as for a missing one."""
        if organization and not self.belongs_to(organization):
            raise no_organization(organization)

    def belongs_to(self, organization: str) -> bool:
        """Return whether an organization is the caller's; owners have access to all."""
        return self.may("owner") or organization in self.organizations


def no_organization(organization: str) -> NotFound:
    """Return the same error for a missing organization and for one of others."""
    return NotFound(f"Unknown organization {organization!r} for this key. Run `cuebook key list` to list keys.")


def write_token(key: str, secret: bytes) -> str:
    """Return the full API key from its 32 random bytes. Raises InvalidInput."""
    if len(secret) != SECRET_BYTES:
        msg = f"secret: has {len(secret)} bytes. Use {SECRET_BYTES}."
        raise InvalidInput(msg, where="secret")
    number, digits = int.from_bytes(secret), ""
    for _ in range(_LENGTH):
        number, digit = divmod(number, len(_DIGITS))
        digits = _DIGITS[digit] + digits
    return f"{PREFIX}{key}_{digits}"


def id_of(token: str) -> str | None:
    """Return the id of a presented key; None if it is malformed."""
    result = _TOKEN.fullmatch(token)
    return result[1] if result else None


def holds_token(text: str) -> bool:
    """Return whether a text contains a key."""
    return PREFIX in text and _TOKEN.search(text) is not None


def digest_of_token(token: str, database_key: bytes) -> bytes:
    """Return the stored digest of a key: HMAC-SHA256 under the project's key. 256 random bits need no slow hash."""
    return hmac.new(database_key, _DOMAIN + token.encode(), hashlib.sha256).digest()


def fits(token: str, database_key: bytes, digest: bytes) -> bool:
    """Return whether a presented key matches the stored one, by a constant-time comparison."""
    return hmac.compare_digest(digest_of_token(token, database_key), digest)


# ---- organizations ---------------------------------------------------------------------------------------------------


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


def checked(change: OrganizationMemoryChange) -> OrganizationMemoryChange:
    """Check that all categories exist. Raises InvalidInput."""
    wanted = change.long_term_memory.allowed_categories
    for category in wanted if isinstance(wanted, list) else ():
        if category not in CATEGORIES:
            where = "memory.longTermMemory.allowedCategories"
            msg = f"{where}: unknown category {category!r}. Available: {', '.join(CATEGORIES)}."
            raise InvalidInput(msg, where=where)
    return change


def changed(settings: OrganizationSettings, change: OrganizationMemoryChange) -> OrganizationSettings:
    """Return the settings with a change applied."""
    wanted = change.long_term_memory
    fields: dict[str, Any] = {
        name: value for name in wanted.__struct_fields__ if (value := getattr(wanted, name)) is not UNSET
    }
    if isinstance(fields.get("allowed_categories"), list):
        fields["allowed_categories"] = tuple(dict.fromkeys(fields["allowed_categories"]))
    memory = msgspec.structs.replace(settings.memory.long_term_memory, **fields)
    return OrganizationSettings(memory=OrganizationMemory(long_term_memory=memory))
