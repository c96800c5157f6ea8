"""Simulation of many servers on one PostgreSQL, from the service times of this run. Needs SimPy.

`python peer_simpy.py JSON` with `app` and `database` (CPU seconds of a turn), `commit` (seconds of a commit),
`messages` of a turn, `trip` (seconds of one message between machines) and `cores` of the database prints, for each
number of servers, the turns per second and the median seconds of a turn without its model.

A server has one core, and as many turns at once as Cuebook has connections. A turn is three transactions, each with its
share of the work, of random length. Commits wait for the disk side by side, as PostgreSQL groups them. Nothing else
limits: no conflict of transactions, no cache miss, no limit of connections, no replica.
"""

import json
import random
import statistics
import sys
from collections.abc import Generator
from typing import Any

import simpy

SERVERS = (1, 10, 100, 1_000)
AT_ONCE, TRANSACTIONS = 8, 3
_TURNS = 20_000


def simulate(servers: int, times: dict[str, float]) -> tuple[float, float]:
    """Return the turns per second and the median seconds of a turn, with all servers busy."""
    world = simpy.Environment()
    database = simpy.Resource(world, int(times["cores"]))
    dice = random.Random(1)  # noqa: S311  # every run needs the same times
    took: list[float] = []
    ended = world.event()

    def client(core: simpy.Resource) -> Generator[Any, Any, None]:
        while not ended.triggered:
            began = world.now
            for _ in range(TRANSACTIONS):
                yield world.timeout(times["messages"] * times["trip"] / TRANSACTIONS)
                for resource, seconds in ((core, times["app"]), (database, times["database"])):
                    with resource.request() as turn:
                        yield turn
                        yield world.timeout(dice.expovariate(TRANSACTIONS / seconds))
            yield world.timeout(2 * times["commit"])
            took.append(world.now - began)
            if len(took) == warm + _TURNS:
                ended.succeed()

    warm = 2 * servers * AT_ONCE
    for _ in range(servers):
        core = simpy.Resource(world, 1)
        for _ in range(AT_ONCE):
            world.process(client(core))
    starts: list[float] = []

    def watch() -> Generator[Any, Any, None]:
        while len(took) < warm:
            yield world.timeout(0.001)
        starts.append(world.now)

    world.process(watch())
    world.run(ended)
    counted = took[warm:]
    return len(counted) / (world.now - starts[0]), statistics.median(counted)


print(json.dumps([(servers, *simulate(servers, json.loads(sys.argv[1]))) for servers in SERVERS]))
