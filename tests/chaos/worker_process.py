"""Start worker processes, read their acknowledgements and kill them."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

WORKER = Path(__file__).with_name("worker.py")


class WorkerProcess:
    """Starts one worker at a time."""

    def __init__(self) -> None:
        command = [sys.executable, str(WORKER)]
        env = {**os.environ, "PYTHONPATH": str(WORKER.parents[1])}  # for tests/storage
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env)

    def order(self, url, *, run, name="w", tasks=4, writes=150, abandons=True, failpoint="") -> int:
        """Start a worker. Return its process id."""
        order = {
            "url": url, "name": name, "run": run, "tasks": tasks, "writes": writes, "abandons": abandons,
            "failpoint": failpoint,
        }  # fmt: skip
        self.process.stdin.write(json.dumps(order).encode() + b"\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())["pid"]

    def listen(self, callback: Callable[[bytes], object], *, kill: int = 0, after: int = 0) -> int:
        """Pass a worker's lines to a callback until it ends, or `kill` it after so many. Return its exit code."""
        count = 0
        for line in self.process.stdout:
            if line.startswith(b'{"exit"'):
                return json.loads(line)["exit"]
            if line.strip():
                callback(line)
                count += 1
                if count == after and kill:
                    os.kill(kill, signal.SIGKILL)
        msg = "the worker process ended"
        raise AssertionError(msg)

    def close(self) -> None:
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(timeout=60)
