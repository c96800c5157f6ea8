"""Tests of API keys: their format, comparison, roles, revocation and expiry."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuebook.errors import Denied, InvalidInput, NotFound
from cuebook.records.key import (
    ROLES,
    Caller,
    Key,
    OrganizationMemoryChange,
    OrganizationSettings,
    Role,
    changed,
    checked,
    digest_of_token,
    fits,
    id_of,
    write_token,
)
from cuebook.validate import check

BOOK = b"k" * 32
SECRETS = st.binary(min_size=32, max_size=32)


@given(st.from_regex(r"[0-9a-f]{1,20}", fullmatch=True), SECRETS)
def test_a_key_holds_its_id_and_256_random_bits_in_base62(name: str, secret: bytes) -> None:
    token = write_token(name, secret)
    assert re.fullmatch(rf"cue_{name}_[0-9A-Za-z]{{43}}", token)
    assert id_of(token) == name
    assert fits(token, BOOK, digest_of_token(token, BOOK))


@given(SECRETS, SECRETS)
def test_another_secret_or_database_does_not_match(one: bytes, other: bytes) -> None:
    token, digest = write_token("k1", one), digest_of_token(write_token("k1", one), BOOK)
    assert fits(write_token("k1", other), BOOK, digest) is (one == other)
    assert not fits(token, b"o" * 32, digest)
    assert not fits(token, BOOK, b"")


@given(SECRETS, st.integers(0, 400))
def test_a_secret_with_one_changed_bit_does_not_match(secret: bytes, at: int) -> None:
    token = write_token("k1", secret)
    at %= len(token)
    changed_token = token[:at] + chr(ord(token[at]) ^ 1) + token[at + 1 :]
    assert not fits(changed_token, BOOK, digest_of_token(token, BOOK))


@pytest.mark.parametrize(
    "token",
    ["", "cue_", "cue_k1", "cue_k1_short", "sk-abc", "cue__" + "a" * 43, "cue_k1_" + "ä" * 43, "cue_k\n1_" + "a" * 43],
)
def test_an_invalid_key_has_no_id(token: str) -> None:
    assert id_of(token) is None


def test_a_secret_of_another_size_is_rejected() -> None:
    with pytest.raises(InvalidInput, match="32"):
        write_token("k1", b"short")


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        ({}, "valid"),
        ({"expires_at": 10.5}, "valid"),
        ({"expires_at": 10.0}, "expired"),
        ({"revoked_at": 3.0, "expires_at": 99.0}, "revoked"),
    ],
)
def test_a_key_works_until_it_is_revoked_or_expires(fields: dict[str, Any], state: str) -> None:
    assert Key(id="k1", role="agent", **fields).state(10.0) == state


@given(st.sampled_from(ROLES), st.sampled_from(ROLES))
def test_a_role_includes_the_rights_of_lower_roles(mine: Role, needed: Role) -> None:
    caller = Caller(role=mine)
    assert caller.may(needed) is (ROLES.index(mine) >= ROLES.index(needed))
    if not caller.may(needed):
        with pytest.raises(Denied, match=f"role {needed} or higher"):
            caller.need(needed)


def test_a_users_key_acts_for_no_other_user() -> None:
    ann = Caller(role="editor", user="ann", key="k1")
    assert ann.acts_as(None, "", "ann") == "ann"
    for named in (("bob",), ("ann", "bob"), (None, "bob")):
        with pytest.raises(Denied):
            ann.acts_as(*named)
    assert Caller(role="agent", key="k2").acts_as(None, "bob", "carol") == "bob"
    assert Caller(role="agent", key="k2").acts_as() is None


def test_another_organization_is_not_found() -> None:
    admin = Caller(role="admin", organizations=("acme",), key="k1")
    admin.check_organization("acme")
    admin.check_organization(None)
    with pytest.raises(NotFound):
        admin.check_organization("other")
    Caller().check_organization("other")


def change_of(**settings: Any) -> OrganizationMemoryChange:
    return check(settings, OrganizationMemoryChange, "memory", null_is_absent=False)


@pytest.mark.parametrize(
    ("given_", "where"),
    [
        ({"memory": {"longTermMemory": {"allowWrites": None}}}, "memory.longTermMemory.allowWrites"),
        ({"memory": {"longTermMemory": {"enabled": "yes"}}}, "memory.longTermMemory.enabled"),
        ({"memory": {"longTermMemory": {"allowedCategories": ["gossip"]}}}, "memory.longTermMemory.allowedCategories"),
        ({"memory": {"longTerm": {}}}, "memory.longTerm"),
    ],
)
def test_an_invalid_setting_is_named(given_: Any, where: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        checked(change_of(**given_["memory"]))
    assert refused.value.where == where


def test_a_change_keeps_all_other_fields() -> None:
    first = changed(OrganizationSettings(), change_of(longTermMemory={"allowedCategories": []}))
    second = changed(first, change_of(longTermMemory={"enabled": False}))
    third = changed(second, change_of(longTermMemory={"allowedCategories": None}))
    assert second.memory.long_term_memory.allowed_categories == ()
    assert third.memory.long_term_memory.allowed_categories is None
    assert third.memory.long_term_memory.enabled is False
