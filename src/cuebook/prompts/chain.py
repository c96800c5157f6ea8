"""The audit log's hash chain: link, sign and mirror records, and detect tampering.

The chain alone reveals edits, missing records and changed order. Only checkpoints reveal a truncated tail or a chain
that was rewritten from some record on, and only up to the last checkpoint: keep copies where the store's owner has no
access. The holder of the signing key can rewrite everything after the last checkpoint that someone else has
seen. The same key signs receipts of erasures.
"""

import base64
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from cuebook.errors import InvalidInput
from cuebook.prompts import strict_json
from cuebook.prompts.digest import canonical
from cuebook.records.audit import FORGET, GENESIS, PERSONAL, UNREADABLE, Checkpoint, CommittedText, Record, Verdict
from cuebook.records.erasure import Receipt

S = TypeVar("S", Checkpoint, Receipt)

#: Bytes of a salt: 128 bits. The length is fixed, so no part of a text can pass as salt.
SALT_SIZE = 16
#: Prefix of the signed data, so that no signature of a key is valid for a record of another kind.
_PREFIXES: Mapping[type, bytes] = {
    Checkpoint: b"cuebook audit checkpoint v1\n",
    Receipt: b"cuebook erasure receipt v1\n",
}
_ERASURE = b"cuebook audit erasure v1\n"
_ED25519 = "ed25519:"
#: Fields of a mirror line that a record does not have.
_SIDE = frozenset({"commitments", "salts", "redacted"})
_RECORD = frozenset(Record.__struct_fields__) - {"texts"}
#: Valid in a JSON string, but some readers end a line there.
_LINE_ENDS = {"\x85": "\\u0085", "\u2028": "\\u2028", "\u2029": "\\u2029"}


# ---- records ---------------------------------------------------------------------------------------------------------


def commit(text: str, salt: bytes, *, where: str = "text") -> str:
    """Return SHA-256(salt + text) in hex: reveals nothing of the text without the salt, and fits no other text."""
    if len(salt) != SALT_SIZE:
        raise InvalidInput(f"salt: has {len(salt)} bytes. Use {SALT_SIZE}.", where="salt")
    try:
        return hashlib.sha256(salt + text.encode()).hexdigest()
    except UnicodeEncodeError as error:
        raise InvalidInput(f"{where}: contains a lone surrogate, which is not valid text", where=where) from error


def seal(
    record: Record, *, context: Mapping[str, Any], interpolated_text: str = "", output_summary: str = "", salt: bytes
) -> Record:
    """Return a record with its personal texts: commitments in its fields, texts and salts beside. Empty texts get none.

    `salt` is 48 random bytes, 16 per text. Raises InvalidInput naming the part of `context` that JSON cannot represent.
    """
    if len(salt) != SALT_SIZE * len(PERSONAL):
        raise InvalidInput(f"salt: has {len(salt)} bytes. Use {SALT_SIZE * len(PERSONAL)}.", where="salt")
    strict_json.check(context, where="input_context")
    values = (canonical(context).decode() if context else "", interpolated_text, output_summary)
    commitments, texts = {}, {}
    for number, (name, text) in enumerate(zip(PERSONAL, values, strict=True)):
        mine = salt[number * SALT_SIZE : (number + 1) * SALT_SIZE]
        commitments[name] = commit(text, mine, where=name) if text else ""
        if text:
            texts[name] = CommittedText(text, mine.hex())
    return replace(record, **commitments, texts=texts)


def erase(record: Record) -> Record:
    """Return a record without its personal texts. Its commitments, its hash and all later records stay the same."""
    return replace(record, texts={})


def link(record: Record, prev_hash: str) -> Record:
    """Return a record linked to the previous one, GENESIS for the first."""
    strict_json.check(record.selection, where="selection")
    strict_json.check(record.propensity, where="propensity")
    chained = replace(record, prev=prev_hash, hash="")
    return replace(chained, hash=_hash_of(chained))


def _hash_of(record: Record) -> str:
    fields = msgspec.to_builtins(record)
    fields.pop("hash", None)
    fields.pop("texts", None)
    return hashlib.sha256(canonical(fields)).hexdigest()


# ---- signatures ------------------------------------------------------------------------------------------------------


def public_key_of(private_key: bytes) -> bytes:
    """Return the public half (32 bytes) of an Ed25519 key (32 bytes)."""
    return _private(private_key).public_key().public_bytes_raw()  # type: ignore[no-any-return]  # bytes


def sign(record: S, private_key: bytes) -> S:
    """Return a checkpoint or receipt signed with an Ed25519 key of 32 bytes."""
    return replace(record, signature=_signature(_signed_bytes(record), private_key))


def sign_erasure(selection: Mapping[str, Any], private_key: bytes) -> dict[str, Any]:
    """Return the selection of an erasure's record with a signature.

    Without it, write access to the database would be enough to remove texts and document that as an erasure.
    """
    return {**selection, "signature": _signature(_ERASURE + canonical(selection), private_key)}


def is_signed_erasure(selection: Mapping[str, Any], public_key: bytes) -> bool:
    """Return whether the key's holder signed the selection of an erasure's record."""
    fields = dict(selection)
    return _is_valid(fields.pop("signature", None), _ERASURE, fields, public_key)


def is_signed(record: Checkpoint | Receipt, public_key: bytes) -> bool:
    """Return whether the key's holder signed exactly this checkpoint or receipt."""
    return _is_valid(record.signature, _PREFIXES[type(record)], _fields(record), public_key)


def _signature(data: bytes, private_key: bytes) -> str:
    return _ED25519 + base64.b64encode(_private(private_key).sign(data)).decode()


def _is_valid(signature: object, prefix: bytes, fields: Mapping[str, Any], public_key: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        key = Ed25519PublicKey.from_public_bytes(public_key)
    except ValueError as error:
        raise _no_key(error) from error
    if not isinstance(signature, str) or not signature.startswith(_ED25519):
        return False
    try:
        key.verify(base64.b64decode(signature.removeprefix(_ED25519), validate=True), prefix + canonical(fields))
    except (InvalidSignature, InvalidInput, ValueError):  # invalid base64
        return False
    return True


def _private(key: bytes) -> Any:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    try:
        return Ed25519PrivateKey.from_private_bytes(key)
    except ValueError as error:
        raise _no_key(error) from error


def _signed_bytes(record: Checkpoint | Receipt) -> bytes:
    return _PREFIXES[type(record)] + canonical(_fields(record))


def _fields(record: Checkpoint | Receipt) -> dict[str, Any]:
    """Return the signed fields of a checkpoint or receipt."""
    fields: dict[str, Any] = msgspec.to_builtins(record)
    del fields["signature"]
    return fields


def _no_key(error: ValueError) -> InvalidInput:
    return InvalidInput(f"key: not an Ed25519 key of 32 bytes ({error})", where="key")


# ---- verification ----------------------------------------------------------------------------------------------------


def verify(
    records: Iterable[Record | InvalidInput],
    checkpoints: Iterable[Checkpoint] = (),
    *,
    public_key: bytes,
    erasures: bool = True,
) -> Verdict:
    """Verify a chain, oldest record first, against its checkpoints, in any order; reads each record once.

    With `erasures`, a text may only be missing if a later record, signed with the key, documents its erasure.

    An error in a record's place is an unreadable line (`read_mirror`). If the chain was rewritten and linked again,
    only the record under a checkpoint is proven bad: it is `first_bad`, and the reason names the range.
    """
    good, forged = _sort(checkpoints, public_key)
    count, erased, signed, prev = 0, 0, 0, GENESIS
    blank, documented = set[int](), set[int]()
    results = iter(records)
    for record in results:
        checkpoint = good.get(count + 1)
        reason = _fault(record, count + 1, prev, checkpoint, signed)
        if isinstance(record, InvalidInput) or reason:
            total = count + 1 + sum(1 for _ in results)
            return Verdict(ok=False, records=total, first_bad=count + 1, reason=reason, erased=erased, signed=signed)
        count, prev = count + 1, record.hash
        if any(getattr(record, name) and name not in record.texts for name in PERSONAL):
            erased += 1
            blank.add(count)
        if record.event == FORGET:
            documented |= _erased_by(record, public_key)
        signed = count if checkpoint else signed
    last = max(good, default=0)
    if last > count:
        lost = f"records {count + 1} to {last} are" if last > count + 1 else f"record {last} is"
        what = "the tail was truncated" if count else "the whole log was wiped"
        cut = f"{lost} missing: the checkpoint of {good[last].time} covers {last}; {what}"
        return Verdict(ok=False, records=count, first_bad=count + 1, reason=cut, erased=erased, signed=signed)
    if erasures and (lost_texts := blank - documented):
        first = min(lost_texts)
        reason = f"the texts of record {first} were removed without an erasure: no later signed record documents one"
        return Verdict(ok=False, records=count, first_bad=first, reason=reason, erased=erased, signed=signed)
    reason = f"invalid checkpoints: {forged}" if forged else ""
    return Verdict(ok=not forged, records=count, reason=reason, erased=erased, signed=signed)


def _erased_by(record: Record, public_key: bytes) -> set[int]:
    """Return the records before an erasure whose texts it removed; none if the erasure is not signed."""
    selection = record.selection or {}
    if not is_signed_erasure(selection, public_key):
        return set()
    try:
        ranges = msgspec.convert(selection.get("records", []), list[tuple[int, int]])
    except msgspec.ValidationError:
        return set()
    return {seq for first, last in ranges for seq in range(first, min(last + 1, record.seq))}


def _sort(checkpoints: Iterable[Checkpoint], public_key: bytes) -> tuple[dict[int, Checkpoint], str]:
    """Return the valid checkpoints by size, and the fault of the others."""
    good: dict[int, Checkpoint] = {}
    origin, fault = None, ""
    for each in checkpoints:
        first = good.get(each.size, each)
        if not is_signed(each, public_key):
            fault = f"the checkpoint of {each.time} over {each.size} records is not signed by this key"
        elif origin not in (None, each.origin):
            fault = f"the checkpoint of {each.time} is of {each.origin!r}, others are of {origin!r}"
        elif first.root != each.root:
            fault = f"two checkpoints over {each.size} records differ: there are two versions of the chain"
        else:
            good[each.size], origin = first, each.origin
    return good, fault


def _fault(record: Record | InvalidInput, place: int, prev: str, checkpoint: Checkpoint | None, signed: int) -> str:
    """Return the fault at a position of the chain, "" for none."""
    if isinstance(record, InvalidInput):
        return str(record)
    if record.seq != place:
        return f"record {record.seq} is at position {place}: a record was removed, inserted or moved"
    changed = _changed(record, prev)
    if changed:
        return f"record {place} {changed}"
    if checkpoint and checkpoint.root != record.hash:
        return (
            f"record {place} is not the one that the checkpoint of {checkpoint.time} was signed over: "
            f"the chain was rewritten somewhere from record {signed + 1} on"
        )
    return ""


def _changed(record: Record, prev: str) -> str:
    """Return how a record differs from its hash and commitments, "" if it does not."""
    if record.event == UNREADABLE:
        return "is unreadable: it is damaged"
    if record.prev != prev:
        return "does not follow the previous one: one of them was replaced"
    try:
        if record.hash != _hash_of(record):
            return "was changed: its hash differs"
    except InvalidInput as error:
        return f"was changed: {error}"
    for name, text in record.texts.items():
        if not _opens(record, name, text):
            return f"was changed: {name} does not match its commitment"
    return ""


def _opens(record: Record, name: str, text: CommittedText) -> bool:
    try:
        return name in PERSONAL and getattr(record, name) == commit(text.text, bytes.fromhex(text.salt))
    except (ValueError, InvalidInput):
        return False


# ---- the mirror ------------------------------------------------------------------------------------------------------


def mirror_line(record: Record) -> str:
    """Return a record as a line of the mirror file: kAI's seven fields first, with their texts, null for an erased one.

    Anyone can verify it with `commitments` and `salts`: replace the texts by the commitments, remove `hash`, `salts`,
    `commitments` and `redacted`, and compute SHA-256 of the RFC 8785 form; that is `hash`.
    """
    fields = msgspec.to_builtins(record)
    fields.pop("texts", None)
    commitments = {name: fields[name] for name in PERSONAL if fields[name]}
    for name in PERSONAL:
        text = record.texts.get(name)
        fields[name] = None if text is None and name in commitments else text.text if text else ""
    if fields["input_context"] is not None:
        fields["input_context"] = strict_json.parse(fields["input_context"] or "{}", where="input_context")
    fields["commitments"] = commitments
    fields["salts"] = {name: text.salt for name, text in record.texts.items()}
    if set(fields["salts"]) != set(commitments):
        fields["redacted"] = True
    line = json.dumps(fields, ensure_ascii=False, allow_nan=False, separators=(", ", ": "))
    for end, escaped in _LINE_ENDS.items():
        line = line.replace(end, escaped)
    return line + "\n"


def parse_mirror(line: str | bytes) -> Record:
    """Return the record in a line of the mirror file, not verified. Raises InvalidInput for a torn or foreign line."""
    fields = strict_json.parse(line)
    if not isinstance(fields, dict):
        raise InvalidInput("expected a JSON object in a mirror line")
    unknown = sorted(set(fields) - _RECORD - _SIDE)
    if unknown:
        raise InvalidInput(f"{unknown[0]}: unknown field, which no hash covers", where=unknown[0])
    commitments, salts = fields.pop("commitments", {}), fields.pop("salts", {})
    redacted = fields.pop("redacted", False)
    try:
        sides = msgspec.convert([commitments, salts], list[dict[str, str]])
        texts = {name: CommittedText(_shown(name, fields[name]), salt) for name, salt in sides[1].items()}
        entries = {name: sides[0].get(name, "") for name in PERSONAL}
        record = msgspec.convert({**fields, **entries, "texts": {}}, Record)
        unproven = [name for name in PERSONAL if name not in texts and fields[name] not in (None, "", {})]
    except (msgspec.ValidationError, KeyError) as error:
        raise InvalidInput(f"not a record: {error}") from error
    if unproven or redacted is not (set(texts) != set(sides[0])):
        name = (unproven or ["redacted"])[0]
        raise InvalidInput(f"{name}: does not fit the line's commitments and salts", where=name)
    return replace(record, texts=texts)


def read_mirror(lines: Iterable[bytes]) -> Iterator[Record | InvalidInput]:
    """Yield a mirror file's records for `verify`; an unreadable line yields its error."""
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            yield parse_mirror(line)
        except InvalidInput as error:
            torn = f"line {number} is torn: it was not written completely"
            yield InvalidInput(f"line {number}: {error}" if line.endswith(b"\n") else torn)


def _shown(name: str, value: object) -> str:
    """Return the committed text from its form in a line."""
    if name == "input_context":
        return canonical(msgspec.convert(value, dict[str, Any])).decode()
    return msgspec.convert(value, str)
