"""Tests of sign-in with an OpenID Connect provider: real tokens, falsified tokens, replay, redirects."""

import base64
import hashlib
import hmac
import json
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qsl

import httpx
import pytest
from joserfc import jwt
from joserfc.jwk import RSAKey

from conftest import Live
from cuebook import Cuebook
from cuebook.config import Config, build
from cuebook.errors import InvalidInput
from oidc_issuer import CLIENT, SECRET, Issuer

ROLES = "staff = editor; cuebook admins = admin"


@pytest.fixture(scope="module")
def provider() -> Iterator[Issuer]:
    issuer = Issuer()
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("OIDC_CLIENT_SECRET", SECRET)
        yield issuer
    issuer.stop()


@pytest.fixture
def issuer(provider: Issuer) -> Issuer:
    provider.claims, provider.forge = {}, str
    return provider


def settings(issuer: Issuer, **more: Any) -> Config:
    arguments = {"oidc.issuer": issuer.url, "oidc.client_id": CLIENT, "oidc.roles": ROLES}
    arguments |= {"store.url": ":memory:"} | {name.replace("__", "."): value for name, value in more.items()}
    return build(arguments=arguments)


@pytest.fixture(scope="module")
def server(provider: Issuer) -> Iterator[Live]:
    live = Live(Cuebook.open(settings(provider)))
    yield live
    live.stop()


@pytest.fixture
def browser(issuer: Issuer, server: Live) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, headers={"accept": "text/html"}, timeout=60) as client:
        yield client


def begin(browser: httpx.Client, to: str = "/page/conversations") -> str:
    """Start to sign in. Return the address to which the provider redirects."""
    begun = browser.get("/page/login", params={"to": to})
    assert begun.status_code == 303
    with httpx.Client() as provider:  # another host: it gets no cookie
        return provider.get(begun.headers["location"]).headers["location"]


def flags(answer: httpx.Response, name: str) -> str:
    return next(each for each in answer.headers.get_list("set-cookie") if each.startswith(name))


def test_a_user_signs_in_and_out(browser: httpx.Client, issuer: Issuer) -> None:
    assert browser.get("/page/conversations").status_code == 401
    assert browser.get("/api/conversations").status_code == 401
    assert 'href="/page/login?to=/page/conversations"' in browser.get("/page/conversations").text
    done = browser.get(begin(browser))
    assert done.status_code == 200
    assert 'content="0; url=/page/conversations"' in done.text
    key = flags(done, "cuebook_key=cue_")
    assert "HttpOnly" in key
    assert "SameSite=strict" in key
    assert "Max-Age" not in key
    assert browser.get("/page/conversations").status_code == 200
    assert browser.get("/page/audit").status_code == 403
    assert browser.get("/api/conversations").status_code == 401  # the cookie opens pages only
    token = browser.cookies["cuebook_key"]
    as_bearer = {"authorization": f"Bearer {token}"}
    assert browser.get("/api/conversations", headers=as_bearer).status_code == 200
    assert browser.post("/page/key", headers={"origin": str(browser.base_url).rstrip("/")}).status_code == 303
    assert "cuebook_key" not in browser.cookies
    assert browser.get("/api/conversations", headers=as_bearer).status_code == 401  # the copied key is revoked
    assert issuer.asked[-1]["scope"] == "openid profile email"


def test_the_attempt_is_bound_to_the_browser_and_works_once(browser: httpx.Client) -> None:
    address = begin(browser)
    with httpx.Client() as other:
        assert other.get(address).status_code == 401
    cookie = browser.cookies["cuebook_login"]
    assert browser.get(address).status_code == 200
    assert browser.get(address).status_code == 401  # the cookie is gone
    with httpx.Client(cookies={"cuebook_login": cookie}) as thief:  # the code is used
        assert "the provider refused the code" in thief.get(address).text
    swapped, _ = begin(browser), begin(browser)
    assert browser.get(swapped).status_code == 401  # the state of another attempt
    for value in ("", "x", "e30=", base64.b64encode(b'{"state": ""}').decode()):
        with httpx.Client(cookies={"cuebook_login": value}) as broken:
            assert broken.get(address).status_code == 401


@pytest.mark.parametrize("change", [{"state": "other"}, {"code": "x"}, {"iss": "http://evil"}, {"error": "no"}])
def test_a_changed_answer_is_refused(browser: httpx.Client, change: dict[str, str]) -> None:
    path, _, query = begin(browser).partition("?")
    answer = browser.get(path, params=dict(parse_qsl(query)) | change)
    assert answer.status_code == 401
    assert "Sign-in failed" in answer.text
    assert "cuebook_key" not in browser.cookies


@pytest.mark.parametrize(
    "claims",
    [
        {"aud": "other"}, {"aud": ["other", "another"]}, {"aud": None}, {"aud": [CLIENT, "other"]},
        {"iss": "http://evil"}, {"iss": None}, {"exp": 1}, {"exp": None}, {"iat": 4_000_000_000}, {"nonce": "other"},
        {"nonce": None}, {"nbf": 4_000_000_000}, {"azp": "other"}, {"sub": None}, {"sub": ""}, {"sub": "x" * 300},
    ],
)  # fmt: skip
def test_an_id_token_with_wrong_claims_is_refused(
    browser: httpx.Client, issuer: Issuer, claims: dict[str, Any]
) -> None:
    issuer.claims = claims
    answer = browser.get(begin(browser))
    assert (answer.status_code, "cuebook_key" in browser.cookies) == (401, False)


def unsigned(token: str) -> str:
    _, payload, _ = token.split(".")
    return f"{_encoded({'alg': 'none', 'typ': 'JWT'})}.{payload}."


def tampered(token: str) -> str:
    header, payload, signature = token.split(".")
    claims = json.loads(base64.urlsafe_b64decode(payload + "==="))
    return f"{header}.{_encoded(claims | {'groups': ['cuebook admins']})}.{signature}"


def _encoded(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


@pytest.mark.parametrize("forgery", [unsigned, tampered, "public key", "own key", "", "a.b.c", "e30.e30.e30"])
def test_a_forged_id_token_is_refused(browser: httpx.Client, issuer: Issuer, forgery: Any) -> None:
    def by_public_key(token: str) -> str:  # a server that accepts HMAC knows this key
        text = f"{_encoded({'alg': 'HS256', 'kid': 'k1'})}.{token.split('.')[1]}"
        mac = hmac.new(issuer.key.as_pem(private=False), text.encode(), hashlib.sha256).digest()
        return f"{text}.{base64.urlsafe_b64encode(mac).decode().rstrip('=')}"

    def by_own_key(token: str) -> str:
        claims = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "==="))
        return jwt.encode({"alg": "RS256", "kid": "k1"}, claims, RSAKey.generate_key(2048))

    forgeries = {"public key": by_public_key, "own key": by_own_key}
    issuer.forge = forgery if callable(forgery) else forgeries.get(forgery, lambda _: forgery)
    answer = browser.get(begin(browser))
    assert (answer.status_code, "cuebook_key" in browser.cookies) == (401, False)


def test_a_replaced_key_of_the_provider_is_loaded(browser: httpx.Client, issuer: Issuer) -> None:
    assert browser.get(begin(browser)).status_code == 200
    before, issuer.key = issuer.key, RSAKey.generate_key(2048, {"kid": "k2", "use": "sig"})
    try:
        assert browser.get(begin(browser)).status_code == 200
    finally:
        issuer.key = before


@pytest.mark.parametrize(
    "to",
    ["https://evil.example", "//evil.example", "/\\evil.example", "/\t/evil.example", "\\\\evil", "javascript:x", ""],
)
def test_sign_in_never_leads_to_another_server(browser: httpx.Client, to: str) -> None:
    done = browser.get(begin(browser, to))
    assert 'content="0; url=/"' in done.text
    typed = browser.post("/page/key", data={"key": browser.cookies["cuebook_key"], "to": to})
    assert typed.headers["location"] == "/"


@pytest.mark.parametrize(
    ("claims", "options", "status", "audit"),
    [
        ({"groups": ["staff", "cuebook admins"]}, {}, 200, 200),
        ({"groups": "staff"}, {}, 200, 403),
        ({"groups": ["others"]}, {}, 403, 401),
        ({"groups": None}, {}, 403, 401),
        ({"groups": {"staff": 1}}, {}, 403, 401),
        ({"realm": {"roles": ["staff"]}}, {"oidc__role_claim": "realm.roles"}, 200, 403),
        ({"email_verified": True}, {"oidc__user_claim": "email"}, 200, 403),
        ({}, {"oidc__user_claim": "email"}, 401, 401),
    ],
)
def test_the_role_claim_determines_the_role(
    issuer: Issuer, serve_live: Callable[..., Live], claims: Any, options: Any, *, status: int, audit: int
) -> None:
    issuer.claims = claims
    with httpx.Client(base_url=serve_live(settings(issuer, **options)).url) as browser:
        assert browser.get(begin(browser)).status_code == status
        assert browser.get("/page/audit").status_code == audit


def test_behind_tls_the_cookies_are_secure(issuer: Issuer, serve_live: Callable[..., Live]) -> None:
    live = serve_live(settings(issuer, oidc__server_url="https://cue.example"))
    begun = httpx.get(f"{live.url}/page/login", headers={"host": "cue.example"})
    assert dict(parse_qsl(begun.headers["location"].partition("?")[2]))["redirect_uri"].startswith(
        "https://cue.example/"
    )
    cookie = flags(begun, "__Host-cuebook_login=")
    assert "Secure" in cookie
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    assert "Domain" not in cookie


def test_an_unreachable_provider_is_reported(serve_live: Callable[..., Live]) -> None:
    config = build(arguments={"oidc.issuer": "http://127.0.0.1:9", "oidc.client_id": "c", "store.url": ":memory:"})
    answer = httpx.get(f"{serve_live(config).url}/page/login")
    assert answer.status_code == 502
    assert "cannot be reached" in answer.text


@pytest.mark.parametrize(
    ("arguments", "where"),
    [
        ({"oidc.issuer": "http://login.example.com", "oidc.client_id": "c"}, "oidc.issuer"),
        ({"oidc.issuer": "https://login.example.com"}, "oidc.client_id"),
        ({"oidc.issuer": "https://a.example", "oidc.client_id": "c", "oidc.roles": "staff = king"}, "oidc.roles"),
        ({"oidc.issuer": "https://a.example", "oidc.client_id": "c", "oidc.server_url": "http://b"}, "oidc.server_url"),
    ],
)
def test_unsafe_settings_are_refused(arguments: dict[str, str], where: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        build(arguments=arguments)
    assert refused.value.where == where
