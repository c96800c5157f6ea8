"""OpenID Connect client: sign users in by an authorization code with PKCE, and verify ID tokens (extra `oidc`)."""

import base64
import hmac
import secrets
from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct

from cuebook.config import is_safe_address
from cuebook.errors import InvalidInput, Unproven, UpstreamError
from cuebook.providers.openai import certificates

T = TypeVar("T")
#: Signature algorithms of ID tokens. With symmetric ones or `none`, a public key or nothing could sign a token.
ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
#: Longest answer of a provider, in bytes.
_MOST: Final = 1_000_000
_WAIT_S: Final = 10.0
#: Tolerated clock difference to the provider, in seconds.
LEEWAY_S: Final = 60


class LoginAttempt(Struct, frozen=True, kw_only=True):
    """A started sign-in. The browser keeps it in a cookie, so that only this browser can finish it."""

    state: str
    nonce: str
    verifier: str
    to: str  # local address to open afterwards


class _Provider(Struct, frozen=True):
    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str


class _Tokens(Struct, frozen=True):
    id_token: str
    access_token: str | None = None


def new_attempt(to: str) -> LoginAttempt:
    """Return a new attempt with random values."""
    return LoginAttempt(
        state=secrets.token_urlsafe(32), nonce=secrets.token_urlsafe(32), verifier=secrets.token_urlsafe(48), to=to
    )


class OidcClient:
    """A client of one provider. Its addresses and keys are loaded once; keys again if a token names an unknown one."""

    def __init__(self, issuer: str, client_id: str, *, secret: str = "", scopes: str = "openid") -> None:
        try:
            import authlib.oidc.core  # noqa: F401
        except ImportError:
            msg = "Sign-in with OpenID Connect is not installed. Install cuebook[oidc]."
            raise InvalidInput(msg, where="oidc.issuer") from None
        self._issuer, self._client_id, self._secret, self._scopes = issuer, client_id, secret, scopes
        self._provider: _Provider | None = None
        self._keys: Any = None

    async def address(self, attempt: LoginAttempt, redirect_uri: str) -> str:
        """Return the provider's address at which the user signs in. Raises UpstreamError."""
        from authlib.oauth2.rfc6749.parameters import prepare_grant_uri
        from authlib.oauth2.rfc7636 import create_s256_code_challenge

        provider = await self._discover()
        address: str = prepare_grant_uri(
            provider.authorization_endpoint,
            client_id=self._client_id,
            response_type="code",
            redirect_uri=redirect_uri,
            scope=self._scopes,
            state=attempt.state,
            nonce=attempt.nonce,
            code_challenge=create_s256_code_challenge(attempt.verifier),
            code_challenge_method="S256",
        )
        return address

    async def claims(
        self, attempt: LoginAttempt, answer: Mapping[str, str], redirect_uri: str, *, now: float
    ) -> dict[str, Any]:
        """Return the verified claims of the user, from the query with which the provider redirected the browser.

        Raises Unproven if anything is not as the attempt expects it, UpstreamError if the provider cannot be reached.
        """
        if not hmac.compare_digest(answer.get("state", "").encode(), attempt.state.encode()):
            msg = "Sign-in failed: it was not started in this browser, or it is too old. Try again."
            raise Unproven(msg)
        if error := answer.get("error"):
            msg = f"Sign-in failed: the provider answered {error[:100]!r}. Try again, or ask its administrator."
            raise Unproven(msg)
        provider = await self._discover()
        if answer.get("iss", provider.issuer) != provider.issuer:  # RFC 9207: an answer of another provider
            raise _invalid("it is from another provider")
        tokens = await self._exchange(provider, attempt, answer.get("code", ""), redirect_uri)
        return await self._verified(provider, tokens, attempt.nonce, now=now)

    async def _discover(self) -> _Provider:
        if self._provider is None:
            url = f"{self._issuer.rstrip('/')}/.well-known/openid-configuration"
            found = await self._fetch(_Provider, "GET", url)
            if found.issuer != self._issuer:
                msg = f"The OpenID Connect provider names itself {found.issuer!r}."
                raise UpstreamError(f"{msg} Set oidc.issuer to this, if it is right.", status=502)
            for url in (found.authorization_endpoint, found.token_endpoint, found.jwks_uri):
                if not is_safe_address(url):
                    msg = f"The OpenID Connect provider names an address without TLS: {url!r}."
                    raise UpstreamError(msg, status=502)
            self._provider = found
        return self._provider

    async def _exchange(self, provider: _Provider, attempt: LoginAttempt, code: str, redirect_uri: str) -> _Tokens:
        """Exchange a code for tokens."""
        form = {"grant_type": "authorization_code", "code": code, "redirect_uri": redirect_uri}
        form |= {"client_id": self._client_id, "code_verifier": attempt.verifier}
        auth = (self._client_id, self._secret) if self._secret else None
        return await self._fetch(_Tokens, "POST", provider.token_endpoint, data=form, auth=auth)

    async def _verified(self, provider: _Provider, tokens: _Tokens, nonce: str, *, now: float) -> dict[str, Any]:
        from authlib.oidc.core import CodeIDToken
        from joserfc import jwt
        from joserfc.errors import JoseError
        from joserfc.jwk import KeySet

        async def load_keys() -> Any:
            document: Any = await self._fetch(dict[str, Any], "GET", provider.jwks_uri)
            try:
                return KeySet.import_key_set(document)
            except (JoseError, KeyError, ValueError, TypeError) as error:
                raise _invalid("the provider's keys are unreadable") from error

        async def decode() -> Any:
            if self._keys is None:
                self._keys = await load_keys()
            try:
                return jwt.decode(tokens.id_token, self._keys, algorithms=list(ALGORITHMS))
            except (JoseError, ValueError, TypeError):
                self._keys = await load_keys()  # the provider may have replaced its keys
                return jwt.decode(tokens.id_token, self._keys, algorithms=list(ALGORITHMS))

        try:
            token = await decode()
            expected = {
                "iss": {"essential": True, "value": provider.issuer},
                "aud": {"essential": True, "value": self._client_id},
            }
            given = {"nonce": nonce, "client_id": self._client_id, "access_token": tokens.access_token}
            claims = CodeIDToken(token.claims, token.header, expected, given)
            claims.validate(now=int(now), leeway=LEEWAY_S)
        except (JoseError, ValueError, TypeError) as error:
            raise _invalid(str(error)) from error
        return dict(token.claims)

    async def _fetch(self, kind: type[T], method: str, url: str, **options: Any) -> T:
        """Return a JSON answer of the provider."""
        import httpx2

        verify = certificates(url)
        try:
            async with (
                httpx2.AsyncClient(timeout=_WAIT_S, follow_redirects=False, trust_env=False, verify=verify) as client,
                client.stream(method, url, headers={"accept": "application/json"}, **options) as answer,
            ):
                body = bytearray()
                async for chunk in answer.aiter_bytes():
                    body += chunk
                    if len(body) > _MOST:
                        break
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            msg = f"The OpenID Connect provider cannot be reached at {url} ({type(error).__name__})."
            raise UpstreamError(msg, status=502, retryable=True) from error
        if method == "POST" and 400 <= answer.status_code < 500:
            raise _invalid("the provider refused the code")
        try:
            return msgspec.json.decode(bytes(body[:_MOST]), type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            msg = f"The OpenID Connect provider sent an unexpected answer from {url} (status {answer.status_code})."
            raise UpstreamError(msg, status=502) from error


def write_attempt(attempt: LoginAttempt) -> str:
    """Return an attempt as the value of a cookie."""
    return base64.urlsafe_b64encode(msgspec.json.encode(attempt)).decode()


def read_attempt(text: str) -> LoginAttempt:
    """Return the attempt of a cookie's value. Raises Unproven."""
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(text), type=LoginAttempt)
    except ValueError as error:  # not base64, not JSON, or another record
        msg = "Sign-in failed: it was not started in this browser, or it is too old. Try again."
        raise Unproven(msg) from error


def _invalid(reason: str) -> Unproven:
    return Unproven(f"Sign-in failed: the provider's answer is not valid ({reason}). Try again.")
