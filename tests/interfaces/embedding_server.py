"""A local test server for OpenAI's `/embeddings` endpoint, without a model."""

import asyncio
import json
import threading
from array import array
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from cuebook.errors import BackendError
from hashing_embedder import HashingEmbedder


class Embeddings:
    """The server's embedder and its requests. `embedder` may be replaced while the server runs.

    `model` is the accepted model name; `keys` are the received Authorization headers. A request with a text that
    contains `refuses` is answered with the status `refused_with`.
    """

    def __init__(self, embedder: HashingEmbedder, model: str) -> None:
        self.embedder = embedder
        self.model = model
        self.url = ""
        self.keys: list[str | None] = []
        self.refuses = ""
        self.refused_with = 400

    def answer(self, path: str, asked: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
        """Return the status and body for a request."""
        if path != "/v1/embeddings" or asked.get("model") != self.model:
            return 404, {"error": {"message": f"Unknown model {asked.get('model')!r}."}}
        if self.refuses and any(self.refuses in text for text in asked["input"]):
            return self.refused_with, {"error": {"message": "An input was refused."}}
        try:
            vectors = asyncio.run(self.embedder.embed(asked["input"]))
        except BackendError as error:
            return 500, {"error": {"message": str(error)}}
        rows = [{"index": at, "embedding": list(array("f", vector))} for at, vector in enumerate(vectors)]
        return 200, {"object": "list", "model": self.model, "data": rows}


@contextmanager
def embedding_server(embedder: HashingEmbedder | None = None, *, model: str = "many-tongues") -> Iterator[Embeddings]:
    """Serve on a free port of 127.0.0.1 until the block ends; `url` is the value for `embedder.base_url`."""
    embeddings = Embeddings(embedder or HashingEmbedder(), model)

    class Answers(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            embeddings.keys.append(self.headers.get("authorization"))
            value = json.loads(self.rfile.read(int(self.headers["content-length"])))
            status, data = embeddings.answer(self.path, value)
            body = json.dumps(data).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Suppress the request log."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    embeddings.url = f"http://127.0.0.1:{server.server_port}/v1"
    thread = threading.Thread(target=server.serve_forever, name="embeddings")
    thread.start()
    try:
        yield embeddings
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
