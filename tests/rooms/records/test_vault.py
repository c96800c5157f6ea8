"""What was replaced is put back as it came, and never into what is not its own."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cuebook.records.redact import Redactor, taken
from cuebook.records.vault import collected, put_back, put_back_json, values_of

REDACTOR = Redactor(b"k" * 32)
SECRETS = [
    "ghp_Zx9Yw8Vu7Ts6Rq5Po4Nm3Lk2Ji1Hg0FeDcBa", "AKIA" + "ABCDEFGH23456789", "4111 1111 1111 1111", "4111111111111111",
    "-----BEGIN PRIVATE " + "KEY-----\nMIIEowIBAAKCAQEAx1\nq2w3e4r5==\n-----END PRIVATE " + "KEY-----",
    "password: Tr0ub4dor&3", 'password is "hun\\"ter2é"', "https://ana:s3cretpw@example.org/",
]  # fmt: skip
texts = st.lists(st.one_of(st.sampled_from(SECRETS), st.text('abc \\"\n/é中😀', max_size=6)), max_size=8).map(" ".join)


@settings(max_examples=300)
@given(texts)
def test_a_text_comes_back_as_it_was(text):
    clean, findings = REDACTOR.text(text)
    assert put_back(clean, values_of(collected(taken(text, findings)))) == text


@settings(max_examples=300)
@given(texts, texts)
def test_a_message_comes_back_as_it_was_with_arguments_inside(text, argument):
    calls = [{"id": "1", "type": "function", "function": {"name": "f", "arguments": json.dumps({"x": argument})}}]
    message = {"role": "assistant", "content": text, "tool_calls": calls}
    raw = json.dumps(message).encode()
    clean, findings = REDACTOR.json(raw)
    assert json.loads(put_back_json(clean, values_of(collected(taken(raw, findings))))) == message


def test_each_spelling_of_a_key_stands_where_it_stood():
    key = SECRETS[4]
    message = {"content": key, "tool_calls": [{"function": {"arguments": json.dumps({"key": key})}}]}
    raw = json.dumps(message).encode()
    clean, findings = REDACTOR.json(raw)
    assert len({each.fingerprint for each in findings}) == 1
    back = json.loads(put_back_json(clean, values_of(collected(taken(raw, findings)))))
    assert json.loads(back["tool_calls"][0]["function"]["arguments"]) == {"key": key}
    assert back == message


def test_what_was_put_back_is_not_looked_into_again():
    token, other = "[[secret:password#0123456789abcdef]]", "[[secret:password#fedcba9876543210]]"
    assert put_back(f"{token} {other}", {token: (other,), other: ("x",)}) == f"{other} x"


def test_tokens_nobody_knows_stay():
    text = "say [[secret:password#0123456789abcdef]] and [[secret:pin#00"
    assert put_back(text, {"[[secret:pin#0123456789abcdef]]": ("x",)}) == text


def test_half_a_surrogate_pair_stays_an_escape():
    token = "[[secret:password#0123456789abcdef]]"
    document = json.dumps({"content": token}).encode()
    assert json.loads(put_back_json(document, {token: ("a\ud800",)})) == {"content": "a\ud800"}


@pytest.mark.parametrize("values", [("Tr0ub4dor&3",), ("a", "b")])
def test_a_secret_is_not_in_what_is_printed_of_it(values):
    secret = collected([("[[secret:password#0123456789abcdef]]", value) for value in values])[0]
    assert repr(secret) == "Secret([[secret:password#0123456789abcdef]])"
    assert secret.values == values
