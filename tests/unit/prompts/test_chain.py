"""Tests of the audit chain: tampering is located, erasure is allowed, and the mirror file verifies."""

import base64
import hashlib
import json
from collections.abc import Callable, Sequence

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from cuebook.errors import InvalidInput
from cuebook.prompts import chain
from cuebook.prompts.chain import commit, erase, is_signed, link, mirror_line, parse_mirror, seal, sign, verify
from cuebook.prompts.digest import canonical
from cuebook.records.audit import GENESIS, PERSONAL, Checkpoint, CommittedText, Record

KEY = bytes(range(32))
PUBLIC = chain.public_key_of(KEY)
SALT = bytes(range(48))
TIME = "2026-11-22T06:00:00Z"
BLANK = Record(
    timestamp="2025-06-20T13:22:11Z", agent="kai://agent/assistant", prompt_id="persona/kind_helper", version="1.2.0",
    input_context="", interpolated_text="", output_summary="", event="render", seq=1,
)  # fmt: skip


def record(seq: int, name: str = "Alex") -> Record:
    """Return the example record of kAI."""
    blank = replace(BLANK, seq=seq, render_id=f"r{seq}", propensity=0.95, selection={"scores": [0.5]}, turn=seq)
    return seal(
        blank,
        context={"user_name": name, "agent_name": "kAI"},
        interpolated_text=f"Welcome {name}, I'm kAI. How can I help you today?",
        output_summary="Responded with intro message",
        salt=hashlib.sha384(f"{seq}{name}".encode()).digest(),
    )


def chain_of(records: Sequence[Record]) -> list[Record]:
    """Rebuild the chain, as an attacker with write access to the whole store could."""
    prev, chained = GENESIS, []
    for each in records:
        chained.append(link(each, prev))
        prev = chained[-1].hash
    return chained


def checkpoint(records: Sequence[Record], size: int | None = None, **fields: object) -> Checkpoint:
    size = len(records) if size is None else size
    values = {"origin": "book", "size": size, "root": records[size - 1].hash, "time": TIME, **fields}
    return sign(Checkpoint(**values), KEY)


CHAIN = chain_of([record(seq) for seq in range(1, 11)])
POINTS = [checkpoint(CHAIN, 5), checkpoint(CHAIN)]


# ---- a whole chain ---------------------------------------------------------------------------------------------------


def test_a_whole_chain_verifies():
    verdict = verify(CHAIN, reversed(POINTS), public_key=PUBLIC)
    assert (verdict.ok, verdict.records, verdict.first_bad, verdict.reason) == (True, 10, None, "")
    assert (verdict.erased, verdict.signed) == (0, 10)
    assert verify([], public_key=PUBLIC).ok
    assert verify(CHAIN, POINTS[:1], public_key=PUBLIC).signed == 5


def test_a_record_hash_covers_all_non_personal_fields():
    fields = msgspec.to_builtins(CHAIN[0])
    del fields["hash"], fields["texts"]
    assert CHAIN[0].hash == hashlib.sha256(canonical(fields)).hexdigest()
    assert "Alex" not in str(fields)
    assert CHAIN[0].prev == GENESIS
    assert CHAIN[1].prev == CHAIN[0].hash


def test_a_commitment_is_salted_and_binds_one_text():
    salt = SALT[:16]
    assert commit("Alex", salt) == hashlib.sha256(salt + b"Alex").hexdigest()
    assert commit("Alex", salt) != commit("Alex", SALT[16:32])
    for wrong in (b"", salt[:15], salt + b"A"):  # otherwise the text "lex" with the salt + "A" would match too
        with pytest.raises(InvalidInput, match="Use 16"):
            commit("lex", wrong)


def test_missing_texts_have_no_commitment():
    sealed = seal(BLANK, context={}, interpolated_text="", output_summary="done", salt=SALT)
    assert (sealed.input_context, sealed.interpolated_text) == ("", "")
    assert sealed.texts == {"output_summary": CommittedText("done", SALT[32:].hex())}
    assert verify(chain_of([sealed]), public_key=PUBLIC).erased == 0


def test_unprovable_records_are_rejected_by_field():
    cases: list[tuple[Callable[[], object], str]] = [
        (lambda: seal(BLANK, context={"a": [float("nan")]}, salt=SALT), "input_context.a[0]: nan is not a JSON number"),
        (lambda: seal(BLANK, context={"a": 2**53}, salt=SALT), "input_context.a: 9007199254740992 is beyond 2^53"),
        (lambda: seal(BLANK, context={}, interpolated_text="\ud800", salt=SALT), "interpolated_text: contains a"),
        (lambda: seal(BLANK, context={}, salt=SALT[:16]), "salt: has 16 bytes. Use 48"),
        (lambda: link(replace(BLANK, selection={"s": float("inf")}), GENESIS), "selection.s: inf is not a JSON number"),
        (lambda: link(replace(BLANK, propensity=float("nan")), GENESIS), "propensity: nan is not a JSON number"),
        (
            lambda: sign(Checkpoint(origin="b", size=1, root="", time=""), b"short"),
            "key: not an Ed25519 key of 32 bytes",
        ),
        (lambda: verify([], POINTS, public_key=b""), "key: not an Ed25519 key of 32 bytes"),
        (lambda: chain.public_key_of(b""), "key: not an Ed25519 key of 32 bytes"),
    ]
    for make, said in cases:
        with pytest.raises(InvalidInput) as refused:
            make()
        assert str(refused.value).startswith(said)


# ---- tampering -------------------------------------------------------------------------------------------------------


def edited(place: int, **fields: object) -> list[Record]:
    return [replace(each, **fields) if each.seq == place else each for each in CHAIN]


def rehashed(place: int, **fields: object) -> list[Record]:
    """Change a record and its hash, but leave the other records."""
    return [link(replace(each, **fields), each.prev) if each.seq == place else each for each in CHAIN]


def without(*places: int) -> list[Record]:
    return [each for each in CHAIN if each.seq not in places]


def renumbered(records: Sequence[Record]) -> list[Record]:
    return [replace(each, seq=seq) for seq, each in enumerate(records, start=1)]


def other_text(place: int, name: str, said: str) -> list[Record]:
    texts = dict(CHAIN[place - 1].texts)
    texts[name] = CommittedText(said, texts[name].salt)
    return edited(place, texts=texts)


SWAPPED = [*CHAIN[:3], CHAIN[4], CHAIN[3], *CHAIN[5:]]


@pytest.mark.parametrize(
    ("records", "first_bad", "said"),
    [
        (edited(4, version="1.3.0"), 4, "record 4 was changed: its hash differs"),
        (edited(4, timestamp=""), 4, "record 4 was changed"),
        (edited(4, propensity=float("nan")), 4, "record 4 was changed: "),
        (edited(10, turn=3), 10, "record 10 was changed"),
        (edited(4, hash="0" * 64), 4, "record 4 was changed"),
        (edited(4, prev="0" * 64), 4, "record 4 does not follow the previous one"),
        (edited(4, interpolated_text="0" * 64), 4, "record 4 was changed"),
        (edited(4, output_summary="", texts={}), 4, "record 4 was changed"),
        (rehashed(4, agent="someone"), 5, "record 5 does not follow the previous one"),
        (rehashed(10, agent="someone"), 10, "record 10 is not the one that the checkpoint of"),
        (other_text(4, "interpolated_text", "Go away"), 4, "record 4 was changed: interpolated_text does not match"),
        (other_text(4, "input_context", "{}"), 4, "record 4 was changed: input_context does not match"),
        (edited(4, texts={"agent": CommittedText("x", "00" * 16)}), 4, "record 4 was changed: agent does not match"),
        (edited(4, texts={"output_summary": CommittedText("x", "zz")}), 4, "record 4 was changed: output_summary"),
        (edited(4, texts=CHAIN[4].texts), 4, "record 4 was changed: input_context does not match"),
        (without(4), 4, "record 5 is at position 4"),
        (without(1), 1, "record 2 is at position 1"),
        (without(3, 4, 5), 3, "record 6 is at position 3"),
        (renumbered(without(4)), 4, "record 4 does not follow the previous one"),
        (SWAPPED, 4, "record 5 is at position 4"),
        (renumbered(SWAPPED), 4, "record 4 does not follow the previous one"),
        ([*CHAIN[:4], *CHAIN[3:]], 5, "record 4 is at position 5"),
        ([*CHAIN, CHAIN[0]], 11, "record 1 is at position 11"),
        (CHAIN[:9], 10, f"record 10 is missing: the checkpoint of {TIME} covers 10; the tail was truncated"),
        (CHAIN[:6], 7, "records 7 to 10 are missing"),
        ([], 1, "records 1 to 10 are missing"),
        (chain_of(edited(3, agent="someone")), 5, "record 5 is not the one that the checkpoint of"),
        (chain_of(edited(7, agent="someone")), 10, "the chain was rewritten somewhere from record 6 on"),
        (chain_of(renumbered(without(4))), 5, "the chain was rewritten somewhere from record 1 on"),
        (chain_of([record(seq, "Bob") for seq in range(1, 11)]), 5, "the chain was rewritten"),
    ],
)
def test_tampering_is_located(records: list[Record], first_bad: int, said: str):
    verdict = verify(records, POINTS, public_key=PUBLIC)
    assert (verdict.ok, verdict.first_bad, verdict.records) == (False, first_bad, len(records))
    assert said in verdict.reason


def test_without_a_checkpoint_truncation_is_not_detected():
    assert verify(CHAIN[:6], public_key=PUBLIC) == verify(chain_of(edited(3, agent="x"))[:6], public_key=PUBLIC)
    assert verify(CHAIN[:6], public_key=PUBLIC).signed == 0
    assert not verify(without(4), public_key=PUBLIC).ok


@pytest.mark.parametrize(
    ("points", "said"),
    [
        ([replace(POINTS[1], size=9)], "is not signed by this key"),
        ([replace(POINTS[1], root="0" * 64)], "is not signed by this key"),
        ([replace(POINTS[1], time="")], "is not signed by this key"),
        ([replace(POINTS[1], origin="another")], "is not signed by this key"),
        ([replace(POINTS[1], signature="")], "is not signed by this key"),
        ([replace(POINTS[1], signature="ed25519:AA")], "is not signed by this key"),
        ([replace(POINTS[1], signature="ed25519:é")], "is not signed by this key"),
        ([replace(POINTS[1], signature="none:")], "is not signed by this key"),
        ([replace(POINTS[1], size=2**60)], "is not signed by this key"),
        ([*POINTS, sign(POINTS[1], bytes(32))], "is not signed by this key"),
        ([*POINTS, checkpoint(CHAIN, 3, origin="another")], "is of 'another', others are of 'book'"),
        ([*POINTS, checkpoint(CHAIN, 5, root="0" * 64)], "two checkpoints over 5 records differ"),
    ],
)
def test_an_invalid_checkpoint_is_reported(points: list[Checkpoint], said: str):
    verdict = verify(CHAIN, points, public_key=PUBLIC)
    assert (verdict.ok, verdict.first_bad) == (False, None)
    assert said in verdict.reason


def test_a_forged_checkpoint_does_not_hide_truncation():
    forged = replace(POINTS[1], size=12)
    assert verify(CHAIN[:9], [forged, *POINTS], public_key=PUBLIC).first_bad == 10


def test_a_signature_is_valid_only_for_checkpoints():
    fields = {name: getattr(POINTS[1], name) for name in ("origin", "size", "root", "time")}
    plain = base64.b64encode(Ed25519PrivateKey.from_private_bytes(KEY).sign(canonical(fields))).decode()
    assert is_signed(POINTS[1], PUBLIC)
    assert not is_signed(replace(POINTS[1], signature=f"ed25519:{plain}"), PUBLIC)


@st.composite
def tampered(draw: st.DrawFn) -> list[Record]:
    """Draw a chain that an attacker with write access, but without the signing key, could make."""
    records = list(CHAIN)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(records) - 1)) if records else 0
        kind = draw(st.sampled_from(["edit", "text", "cut", "drop", "swap", "copy", "insert", "number", "chain"]))
        if kind == "insert" or not records:
            records.insert(at, link(record(at + 1, "Eve"), records[at - 1].hash if at else GENESIS))
        elif kind == "edit":
            name = draw(
                st.sampled_from(["timestamp", "agent", "prompt_id", "version", "event", "digest", "prev", *PERSONAL])
            )
            records[at] = replace(records[at], **{name: draw(st.text(st.characters(codec="utf-8")))})
        elif kind == "text":
            said = CommittedText(draw(st.text()), draw(st.binary(max_size=20)).hex())
            records[at] = replace(records[at], texts={**records[at].texts, draw(st.sampled_from(PERSONAL)): said})
        elif kind == "cut":
            del records[at:]
        elif kind == "drop":
            del records[at]
        elif kind == "copy":
            records.insert(draw(st.integers(0, len(records))), records[at])
        elif kind == "swap":
            other = draw(st.integers(0, len(records) - 1))
            records[at], records[other] = records[other], records[at]
        elif kind == "number":
            records = renumbered(records)
        else:
            records = records[:at] + chain_of(records)[at:] if draw(st.booleans()) else chain_of(records)
    # Appending to a valid chain is what its writer does; the next checkpoint shows who did it.
    return records[:10] if records[:10] == CHAIN else records


@given(tampered(), st.sets(st.integers(1, 9)))
@pytest.mark.slow
def test_any_tampering_with_a_signed_chain_is_found(records: list[Record], sizes: set[int]):
    points = [*(checkpoint(CHAIN, size) for size in sizes), checkpoint(CHAIN)]
    verdict = verify(records, points, public_key=PUBLIC)
    assert verdict.ok == (records == CHAIN)
    if not verdict.ok:
        same = next((n for n, (a, b) in enumerate(zip(records, CHAIN, strict=False)) if a != b), min(len(records), 10))
        assert verdict.first_bad is not None
        assert verdict.first_bad > same  # records before the first change are never reported as bad
        assert verdict.reason


# ---- erasing ---------------------------------------------------------------------------------------------------------


def erasure_of(selection: dict[str, object], records: Sequence[Record]) -> Record:
    bare = replace(erase(record(11)), event="forget", input_context="", interpolated_text="", output_summary="")
    return chain.link(replace(bare, selection=selection), records[-1].hash)


@given(st.sets(st.integers(1, 10)))
def test_an_erased_text_keeps_the_chain_valid_if_a_signed_record_documents_it(places: set[int]):
    records = [erase(each) if each.seq in places else each for each in CHAIN]
    alone = verify(records, POINTS, public_key=PUBLIC)
    assert (alone.ok, alone.first_bad) == (not places, min(places, default=None))
    selection = {"records": [[seq, seq] for seq in sorted(places)]}
    for forged in (selection, {**selection, "signature": 7}, chain.sign_erasure({"records": []}, KEY) | selection):
        last = erasure_of(forged, records)
        assert verify([*records, last], POINTS, public_key=PUBLIC).first_bad == min(places, default=None)
    records.append(erasure_of(chain.sign_erasure(selection, KEY), records))
    verdict = verify(records, POINTS, public_key=PUBLIC)
    assert (verdict.ok, verdict.erased, verdict.signed) == (True, len(places), 10)
    lines = [mirror_line(each).encode() for each in records]
    assert verify(chain.read_mirror(lines), POINTS, public_key=PUBLIC) == verdict
    for seq, line in enumerate(lines[:10], start=1):
        assert (b"Alex" in line) == (seq not in places)
        assert json.loads(line).get("redacted", False) == (seq in places)


def test_one_text_of_a_record_can_be_erased_alone():
    left = {"output_summary": CHAIN[0].texts["output_summary"]}
    records = [replace(CHAIN[0], texts=left), *CHAIN[1:]]
    assert verify(records, POINTS, public_key=PUBLIC).erased == 1
    line = json.loads(mirror_line(records[0]))
    assert (line["input_context"], line["interpolated_text"]) == (None, None)
    assert line["output_summary"] == "Responded with intro message"
    assert parse_mirror(mirror_line(records[0])) == records[0]


# ---- the mirror ------------------------------------------------------------------------------------------------------


def test_a_mirror_line_begins_with_the_original_fields():
    line = mirror_line(CHAIN[0])
    assert list(json.loads(line).items())[:7] == [
        ("timestamp", "2025-06-20T13:22:11Z"),
        ("agent", "kai://agent/assistant"),
        ("prompt_id", "persona/kind_helper"),
        ("version", "1.2.0"),
        ("input_context", {"agent_name": "kAI", "user_name": "Alex"}),
        ("interpolated_text", "Welcome Alex, I'm kAI. How can I help you today?"),
        ("output_summary", "Responded with intro message"),
    ]
    assert line.endswith("}\n")


def test_a_short_script_can_verify_a_mirror_line():
    line = json.loads(mirror_line(CHAIN[3]))
    texts = {name: line[name] for name in PERSONAL}
    texts["input_context"] = json.dumps(texts["input_context"], sort_keys=True, separators=(",", ":"))
    commitments, salts = line.pop("commitments"), line.pop("salts")
    for name in PERSONAL:
        assert hashlib.sha256(bytes.fromhex(salts[name]) + texts[name].encode()).hexdigest() == commitments[name]
    kept = {**line, **commitments}
    digest = kept.pop("hash")
    form = json.dumps(kept, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert hashlib.sha256(form.encode()).hexdigest() == digest


TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
CONTEXTS = st.dictionaries(
    TEXTS, TEXTS | st.integers(-1000, 1000) | st.floats(-1e6, 1e6) | st.lists(st.none() | st.booleans())
)


@given(CONTEXTS, TEXTS, TEXTS, st.none() | st.floats(0, 1), st.booleans())
def test_a_mirror_line_round_trips(context, text, summary, propensity, erased):
    blank = replace(BLANK, propensity=propensity, conversation=text, selection=context)
    made = link(seal(blank, context=context, interpolated_text=text, output_summary=summary, salt=SALT), GENESIS)
    kept = erase(made) if erased else made
    line = mirror_line(kept)
    assert len(line.splitlines()) == 1
    assert parse_mirror(line) == parse_mirror(line.encode()) == kept
    assert verify([parse_mirror(line)], public_key=PUBLIC, erasures=False).ok


LINES = [mirror_line(each).encode() for each in CHAIN]


@given(st.integers(1, len(LINES[-1]) - 2))
def test_a_torn_last_line_is_reported(cut: int):
    verdict = verify(chain.read_mirror([*LINES[:-1], LINES[-1][: -cut - 1]]), POINTS, public_key=PUBLIC)
    assert (verdict.ok, verdict.first_bad, verdict.records) == (False, 10, 10)
    assert verdict.reason == "line 10 is torn: it was not written completely"


def test_a_missing_final_newline_and_empty_lines_are_accepted():
    assert verify(chain.read_mirror([*LINES[:-1], b"\n", LINES[-1].rstrip()]), POINTS, public_key=PUBLIC).ok


def changed(**fields: object) -> str:
    return json.dumps({**json.loads(LINES[3]), **fields})


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (LINES[3].decode().replace('"seq"', '"agent": "x", "seq"'), "agent: duplicate key"),
        (changed(propensity=float("nan")), "$.propensity: nan is not a JSON number"),
        (changed(turn=2**53), "$.turn: 9007199254740992 is beyond 2^53"),
        (changed(note="proven"), "note: unknown field, which no hash covers"),
        (changed(seq="4"), "not a record: Expected `int`"),
        (changed(salts=[]), "not a record: Expected `object`"),
        (changed(salts={}), "input_context: does not fit the line's commitments and salts"),
        (changed(input_context=None), "not a record"),
        (changed(interpolated_text=None), "not a record"),
        (changed(redacted=True), "redacted: does not fit"),
        (json.dumps({k: v for k, v in json.loads(LINES[3]).items() if k != "output_summary"}), "not a record"),
        ("[]", "expected a JSON object in a mirror line"),
        ("{}", "not a record"),
    ],
)
def test_an_invalid_mirror_line_is_rejected_with_a_reason(line: str, said: str):
    with pytest.raises(InvalidInput) as refused:
        parse_mirror(line)
    assert str(refused.value).startswith(said)
    found = verify(chain.read_mirror([*LINES[:3], line.encode() + b"\n", *LINES[4:]]), POINTS, public_key=PUBLIC)
    assert (found.ok, found.first_bad, found.records) == (False, 4, 10)
    assert found.reason.startswith(f"line 4: {said}")


def test_an_edited_mirror_is_detected_like_an_edited_table():
    edited_line = LINES[3].replace(b"Welcome Alex", b"Welcome Bob")
    verdict = verify(chain.read_mirror([*LINES[:3], edited_line, *LINES[4:]]), POINTS, public_key=PUBLIC)
    assert (verdict.first_bad, verdict.reason) == (4, "record 4 was changed: interpolated_text does not match its commitment")  # noqa: E501  # fmt: skip
