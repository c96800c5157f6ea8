"""A small OpenID Connect provider for tests: it signs everybody in at once, and its answers can be falsified."""

import base64
import hashlib
import json
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlencode

from joserfc import jwt
from joserfc.jwk import KeySet, RSAKey

from threaded_server import ThreadedServer, body_of

CLIENT, SECRET = "cuebook", "s3cret"


class Issuer:
    """The provider. `claims` override those of ID tokens (None removes one), `forge` changes their text."""

    def __init__(self) -> None:
        self.key = RSAKey.generate_key(2048, {"kid": "k1", "use": "sig"})
        self.claims: dict[str, Any] = {}
        self.forge: Callable[[str], str] = str
        self.codes: dict[str, dict[str, str]] = {}  # the authorization request of each unused code
        self.asked: list[dict[str, str]] = []
        self._server = ThreadedServer(self)
        self.url = self._server.root

    def stop(self) -> None:
        self._server.stop()

    def sign(self, claims: dict[str, Any], **header: Any) -> str:
        return jwt.encode({"alg": "RS256", "kid": self.key.kid, **header}, claims, self.key)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = (await body_of(receive)).decode()
        query = {name: values[0] for name, values in parse_qs(body or scope["query_string"].decode()).items()}
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        match scope["path"]:
            case "/.well-known/openid-configuration":
                names = {"authorization_endpoint": "authorize", "token_endpoint": "token", "jwks_uri": "jwks"}
                answer = {"issuer": self.url} | {name: f"{self.url}/{path}" for name, path in names.items()}
                await _say(send, 200, answer)
            case "/jwks":
                await _say(send, 200, KeySet([self.key]).as_dict(private=False))
            case "/authorize":
                self.asked.append(query)
                code = f"code-{len(self.asked)}"
                self.codes[code] = query
                more = urlencode({"code": code, "state": query["state"], "iss": self.url, "session_state": "x"})
                await _say(send, 302, {}, (b"location", f"{query['redirect_uri']}?{more}".encode()))
            case _:
                await _say(send, *self._tokens(query, headers))

    def _tokens(self, form: dict[str, str], headers: dict[str, str]) -> tuple[int, dict[str, Any]]:
        asked = self.codes.pop(form["code"], None)
        secret = base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
        if asked is None or headers.get("authorization") != f"Basic {secret}":
            return 400, {"error": "invalid_grant"}
        challenge = base64.urlsafe_b64encode(hashlib.sha256(form["code_verifier"].encode()).digest()).decode()
        if asked["code_challenge"] != challenge.rstrip("=") or asked["code_challenge_method"] != "S256":
            return 400, {"error": "invalid_grant"}
        if asked["redirect_uri"] != form["redirect_uri"]:
            return 400, {"error": "invalid_grant"}
        now = int(time.time())
        claims = {
            "iss": self.url, "sub": "mara", "aud": CLIENT, "iat": now, "exp": now + 300, "nonce": asked["nonce"],
            "groups": ["staff"], "email": "mara@example.com",
        }  # fmt: skip
        claims = {name: value for name, value in (claims | self.claims).items() if value is not None}
        return 200, {"access_token": "a", "token_type": "Bearer", "id_token": self.forge(self.sign(claims))}


async def _say(send: Any, status: int, answer: Any, *headers: tuple[bytes, bytes]) -> None:
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [(b"content-type", b"application/json"), *headers],
        }
    )
    await send({"type": "http.response.body", "body": json.dumps(answer).encode()})
