"""Runs an ASGI app on a socket of this machine, in a thread: the scripted providers of the tests."""

import threading
import time
from typing import Any

import uvicorn


class ThreadedServer:
    """The server of an app, until `stop`. `root` is its address."""

    def __init__(self, app: Any) -> None:
        config = uvicorn.Config(app, host="127.0.0.1", port=0, log_config=None, lifespan="off", ws="none")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        while not self._server.started:
            time.sleep(0.005)
        self.root = f"http://127.0.0.1:{self._server.servers[0].sockets[0].getsockname()[1]}"

    def stop(self) -> None:
        self._server.should_exit = self._server.force_exit = True
        self._thread.join(60)


async def body_of(receive: Any) -> bytes:
    """Return the body of a request."""
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    return body
