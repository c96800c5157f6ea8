"""Run a cluster on this machine: PostgreSQL, servers, workers and a round-robin balancer, as processes.

    scripts/cluster                                   2 servers, 2 workers
    scripts/cluster --servers 3 --workers 1 --upstream https://api.openai.com/v1
    scripts/cluster --folder ./cluster                keep the data and the logs; the next start continues

Each process has a folder of its own, as on a machine of its own. Ctrl-C stops all.
"""

import argparse
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from cuebook.app.setup import embedded_postgres
from cuebook.errors import CuebookError

BALANCER = Path(__file__).with_name("balancer.py")
#: Seconds in which a process must be ready, and in which it must end.
READY_S, END_S = 60.0, 20.0


class Node:
    """A process of the cluster. `url` is its address, if it has one."""

    def __init__(
        self, name: str, command: list[str], *, ready: str, folder: Path, environment: Mapping[str, str]
    ) -> None:
        self.name, self.folder, self.url = name, folder, ""
        self.log = folder.parent / f"{name}.log"
        self._command, self._ready, self._environment = command, re.compile(ready, re.MULTILINE), environment
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process without waiting until it is ready."""
        with self.log.open("ab") as log:
            self._offset = log.tell()
            # its own process group: the terminal's Ctrl-C reaches only the cluster, which stops all in order
            self.process = subprocess.Popen(
                self._command, cwd=self.folder, stdout=log, stderr=log, env=dict(self._environment),
                start_new_session=True,
            )  # fmt: skip

    def wait(self) -> None:
        """Wait until the process is ready. Raises RuntimeError with its log if it ends, or after a minute."""
        until = time.monotonic() + READY_S
        while time.monotonic() < until and self.running:
            if found := self._ready.search(self.log.read_bytes()[self._offset :].decode()):
                self.url = (*found.groups(), "")[0]
                return
            time.sleep(0.05)
        msg = f"{self.name} does not start:\n{self.log.read_text()}"
        raise RuntimeError(msg)

    @property
    def running(self) -> bool:
        """Return whether the process has started and not ended."""
        return self.process is not None and self.process.poll() is None

    def send(self, number: int) -> None:
        """Send the process a signal, for example SIGSTOP."""
        if self.process is not None:
            self.process.send_signal(number)

    def kill(self) -> None:
        """End the process at once (SIGKILL)."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def stop(self) -> None:
        """End the process gracefully, or by SIGKILL after a while."""
        if not self.running or self.process is None:
            return
        self.process.terminate()
        try:
            self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            self.kill()


class Cluster:
    """Servers and workers of one database, and a balancer in front of the servers. `url` is the balancer's.

    `settings` is the text of each cuebook.toml after its sections [store] and [work]. `environment` returns more
    variables of a process by its name: server-1, worker-1.
    """

    def __init__(
        self,
        folder: Path,
        *,
        database: str = "",
        servers: int = 2,
        workers: int = 2,
        port: int = 0,
        settings: str = "",
        work: str = "",
        environment: Callable[[str], Mapping[str, str]] = lambda _: {},
    ) -> None:
        self.folder, self.database, self.url = folder.resolve(), database, ""
        self._postgres = None if database else self.folder / "postgres"
        self._settings, self._work, self._port = settings, work, port
        self._environment = environment
        self._counts = servers, workers
        self.servers: list[Node] = []
        self.workers: list[Node] = []
        self._balancer: Node | None = None

    @property
    def nodes(self) -> list[Node]:
        """Return all processes except PostgreSQL, in the order in which they stop."""
        return [*([self._balancer] if self._balancer else []), *self.servers, *self.workers]

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _start(self) -> None:
        if self._postgres is not None:
            self.database = embedded_postgres.start(self._postgres).url or ""
        servers, workers = self._counts
        command, serves, works = _command(), ["serve", "--port", "0"], ["worker"]
        self.servers = [
            self._node(f"server-{n + 1}", [command, *serves], r"running at (http\S+)") for n in range(servers)
        ]
        self.workers = [self._node(f"worker-{n + 1}", [command, *works], "Worker is running") for n in range(workers)]
        first = self.nodes[0]
        subprocess.run(
            [command, "db", "init"],
            cwd=first.folder,
            env=self.environment(first.name),
            check=True,
            stdout=subprocess.DEVNULL,
        )
        for node in self.nodes:
            node.start()
        for node in self.nodes:
            node.wait()
        command_line = [sys.executable, str(BALANCER), "--port", str(self._port), *(each.url for each in self.servers)]
        self._balancer = Node(
            "balancer", command_line, ready=r"^(http\S+)$", folder=self._place("balancer"), environment=os.environ
        )
        self._balancer.start()
        self._balancer.wait()
        self.url = self._balancer.url

    def _place(self, name: str) -> Path:
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        return folder

    def _node(self, name: str, command: list[str], ready: str) -> Node:
        folder = self._place(name)
        where = 'where = "workers"\n' if self._counts[1] else ""
        (folder / "cuebook.toml").write_text(
            f'[store]\nurl = "{self.database}"\n[work]\n{where}{self._work}{self._settings}', "utf-8"
        )
        return Node(name, command, ready=ready, folder=folder, environment=self.environment(name))

    def environment(self, name: str) -> dict[str, str]:
        """Return the environment of a process: with the secret of the cluster, and no other setting of this process."""
        file = self.folder / "key-secret"
        if not file.exists():
            file.touch(0o600)
            file.write_text(secrets.token_urlsafe(32), "ascii")
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("CUEBOOK_")}
        return {**inherited, "CUEBOOK_KEY_SECRET": file.read_text("ascii"), **self._environment(name)}

    def stop(self) -> None:
        """Stop all processes. The data stays in the folder."""
        for node in self.nodes:
            node.send(signal.SIGCONT)  # a stopped process would not end
            node.stop()
        if self._postgres is not None:
            embedded_postgres.stop(self._postgres)


def _command() -> str:
    return str(Path(sys.executable).with_name("cuebook"))


def main() -> None:
    """Run a cluster until Ctrl-C or SIGTERM."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell lets background processes ignore it
    parser = argparse.ArgumentParser(description="Run servers, workers, a balancer and PostgreSQL on this machine.")
    parser.add_argument("--servers", type=int, default=2, metavar="N", help="number of servers; default 2")
    parser.add_argument(
        "--workers", type=int, default=2, metavar="N", help="number of workers; 0: servers do their work"
    )
    parser.add_argument(
        "--port", type=int, default=8760, metavar="P", help="port of the balancer; 0 selects a free one"
    )
    parser.add_argument("--upstream", default="", metavar="URL", help="OpenAI-compatible server that /v1 forwards to")
    parser.add_argument("--database", default="", metavar="URL", help="postgresql://…; default: start a server here")
    parser.add_argument(
        "--folder", type=Path, metavar="DIR", help="folder of data and logs; default: deleted at the end"
    )
    given = parser.parse_args()
    if given.servers < 1 or given.workers < 0:
        parser.error("a cluster needs at least one server, and no negative number of workers")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    folder = given.folder or Path(tempfile.mkdtemp(prefix="cuebook-cluster-"))
    if not given.folder:
        folder.chmod(0o755)  # PostgreSQL may run as another user
    cluster = Cluster(
        folder,
        database=given.database,
        servers=given.servers,
        workers=given.workers,
        port=given.port,
        settings=f'[upstream]\nurl = "{given.upstream}"\n' if given.upstream else "",
    )
    try:
        with cluster:
            print(f"Cluster is running at {cluster.url}")
            for node in cluster.nodes:
                print(f"  {node.name:<10} pid {node.process.pid if node.process else '-'}  {node.url}")
            print(f"  logs       {folder}/*.log")
            print("Press Ctrl-C to stop.", flush=True)
            signal.pause()
    except KeyboardInterrupt:
        print("Stopping")
    except CuebookError as error:
        sys.exit(f"cluster: {error}")
    except subprocess.CalledProcessError:  # its error was printed
        sys.exit("cluster: the database cannot be prepared")
    finally:
        if not given.folder:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
