"""Fork a worker for each order on stdin and report how each one ended.

In: {"url", "name", "run", "tasks", "writes", "abandons", "failpoint"}. Out: {"pid"}, the worker's own lines, {"exit"}.
A fork takes 10 ms and a start half a second, so a thousand kills stay fast.
"""

import asyncio
import json
import os
import sys
import traceback

from cuebook.storage.database.postgres import upgrade
from cuebook.storage.database.transaction import Failpoints
from storage.databases import on_server, open_alone
from storage.hammer import hammer


def say(line: bytes) -> None:
    while line:
        line = line[os.write(1, line) :]


async def work(order) -> None:
    os.environ["CUEBOOK_FAILPOINT"] = order.pop("failpoint")
    if on_server(order["url"]):
        upgrade(order["url"])
    store = open_alone(order.pop("url"), failpoints=Failpoints.from_environment())
    await hammer(store, say, **order)
    await store.aclose()


def child(order) -> int:
    try:
        asyncio.run(work(order))
    except BaseException:  # noqa: BLE001 - a fork must not go on in its parent's loop
        traceback.print_exc()
        return 1
    return 0


def main() -> None:
    for line in sys.stdin.buffer:
        order = json.loads(line)
        pid = os.fork()
        if pid == 0:
            say(b'{"pid": %d}\n' % os.getpid())
            os._exit(child(order))
        _, status = os.waitpid(pid, 0)
        say(b'\n{"exit": %d}\n' % os.waitstatus_to_exitcode(status))  # its last line may be torn


if __name__ == "__main__":
    main()
