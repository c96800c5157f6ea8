"""The words of places as memory holds them: all of a small place, counts of a large one, each of one generation."""

import sqlite3
import threading
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence

from msgspec import Struct

from cuebook.backends.sqlite.base import SQL, one
from cuebook.memory.recall import Query, match_expression

#: A place of so many memories is held whole; of a larger one full text is asked.
SMALL = 1_000
#: In a larger one the rarest words are looked for, as many as stand in about so many memories together: what stands
#: everywhere tells little, and weighing all that hold it would make a search cost the place.
MATCHES = 2_000
#: Places held, the ones used last; one held whole takes about 1 MB.
PLACES = 64


class Told(Struct, frozen=True):
    """What words say of a place: memories that share some with a query, the most first, how many there are, and in how
    many each of the query's words stands. `keys` are their search keys, where they are held.
    """

    found: Sequence[int] = ()
    held: int = 0
    frequencies: Mapping[str, int] = {}
    keys: Mapping[int, str] = {}


class Words(Struct):
    """A place's words. `holding` gives the memories (numbers) a word stands in, None where the place is large; `keys`
    are the memories' search keys.
    """

    generation: int
    held: int
    holding: Mapping[str, Sequence[int]] | None = None
    keys: Mapping[int, str] = {}
    counts: dict[str, int] = {}

    def sharing(self, query: Query, limit: int) -> Told:
        """Find memories of a small place."""
        holding = self.holding or {}
        counts = {term: len(holding[term]) for term in query.terms if term in holding}
        shared = Counter(no for term in counts for no in holding[term])
        best = sorted(((count, no) for no, count in shared.items()), reverse=True)
        found = [no for _, no in best[:limit]]
        return Told(found, self.held, counts, {no: self.keys[no] for no in found})


class PlaceWords:
    """The words of the places searched last. What was forgotten is held until its tenant is looked at again."""

    def __init__(self) -> None:
        self._held: OrderedDict[tuple[str, str, str], Words] = OrderedDict()
        self._epochs: dict[str, int] = {}
        self._lock = threading.Lock()

    def of(self, connection: sqlite3.Connection, values: Mapping[str, str]) -> Words:
        """Give a place's words as they stand in this snapshot. `values` are its columns."""
        self._see(connection, values["tenant"])
        key = (values["tenant"], values["kind"], values["owner"])
        row = one(connection, "place_generation", **values)
        generation = int(row["generation"]) if row else 0
        with self._lock:
            held = self._held.get(key)
            if held is not None and held.generation == generation:
                self._held.move_to_end(key)
                return held
        made = _read(connection, values, generation)
        with self._lock:
            self._held[key] = made
            self._held.move_to_end(key)
            while len(self._held) > PLACES:
                self._held.popitem(last=False)
        return made

    def owners(self) -> list[str]:
        """Name the owners of the places held, the one used last behind the others."""
        with self._lock:
            return [owner for _, _, owner in self._held]

    def _see(self, connection: sqlite3.Connection, tenant: str) -> None:
        """Drop what is held of a tenant where something of it was forgotten since."""
        row = one(connection, "epoch_get", tenant=tenant, kind="", owner="")
        epoch = int(row["epoch"]) if row else 0
        with self._lock:
            if self._epochs.setdefault(tenant, epoch) != epoch:
                self._epochs[tenant] = epoch
                for key in [key for key in self._held if key[0] == tenant]:
                    del self._held[key]


def words_at(connection: sqlite3.Connection, values: Mapping[str, str], at: float) -> Words:
    """Give the words of the memories of a place that held at a time."""
    return _words(
        connection,
        values,
        0,
        connection.execute(SQL["memory_keys_at"], {**values, "at": at, "limit": SMALL + 1}).fetchall(),
    )


def _read(connection: sqlite3.Connection, values: Mapping[str, str], generation: int) -> Words:
    keys = connection.execute(SQL["memory_keys"], {**values, "limit": SMALL + 1}).fetchall()
    return _words(connection, values, generation, keys)


def _words(
    connection: sqlite3.Connection, values: Mapping[str, str], generation: int, keys: Sequence[tuple[int, str]]
) -> Words:
    if len(keys) > SMALL:
        return Words(generation, connection.execute(SQL["memory_held"], values).fetchone()[0])
    holding: dict[str, list[int]] = {}
    for no, key in keys:
        for term in set(key.split()):
            holding.setdefault(term, []).append(no)
    return Words(generation, len(keys), holding, dict(keys))


def rarest(connection: sqlite3.Connection, words: Words, query: Query, token: str) -> tuple[Query, dict[str, int]]:
    """Give a query that looks for its rarest words in a large place only, and in how many memories each stands.

    Counting costs the memories that hold a word, once for each state of the place.
    """
    for term in query.terms:
        if term not in words.counts:
            match = match_expression(Query(text="", terms=(term,)), token)
            words.counts[term] = connection.execute(SQL["memory_count_of_word"], {"match": match}).fetchone()[0]
    counts = {term: words.counts[term] for term in query.terms}
    chosen: list[str] = []
    total = 0
    for term, count in sorted(counts.items(), key=lambda each: (each[1], each[0])):
        if chosen and total + count > MATCHES:
            break
        if count:
            chosen.append(term)
            total += count
    return Query(text=query.text, terms=tuple(chosen)), counts
