"""Sign-in to the inspector with an OpenID Connect provider: a signed-in user gets an API key that expires soon."""

import os
from collections.abc import Mapping
from typing import Any, Final

from cuebook.app.keys import LONGEST, Keys
from cuebook.config import oidc_roles
from cuebook.engine.core.services import Services
from cuebook.errors import Denied, Unproven
from cuebook.providers.oidc import OidcClient, new_attempt, read_attempt, write_attempt
from cuebook.records.key import ROLES, NewKey, Role

#: Path of the address to which the provider redirects.
CALLBACK: Final = "/page/login/callback"


class Login:
    """Signs users in. Each user's role is that of the claims of their ID token."""

    def __init__(self, services: Services) -> None:
        self._services, self._settings = services, services.config.oidc
        secret = os.environ.get(self._settings.client_secret_env, "")
        self._client = OidcClient(
            self._settings.issuer, self._settings.client_id, secret=secret, scopes=self._settings.scopes
        )
        self._roles = oidc_roles(self._settings)

    async def begin(self, to: str, server_url: str) -> tuple[str, str]:
        """Return the provider's address, and a cookie with which `finish` recognizes the browser.

        `to` is a local address to open afterwards. Raises UpstreamError.
        """
        attempt = new_attempt(to)
        return await self._client.address(attempt, self._callback(server_url)), write_attempt(attempt)

    async def finish(self, cookie: str | None, answer: Mapping[str, str], server_url: str) -> tuple[NewKey, str]:
        """Return a key of the user that the provider's answer proves, and the local address to open.

        Raises Unproven for an answer that is not valid, Denied for a user without a role, UpstreamError.
        """
        attempt, now = read_attempt(cookie or ""), self._services.clock.now()
        claims = await self._client.claims(attempt, answer, self._callback(server_url), now=now)
        user, role = self._user_of(claims), self._role_of(claims)
        key = await Keys(self._services).sign_in(user, role, hours=self._settings.session_hours)
        return key, attempt.to

    def _callback(self, server_url: str) -> str:
        return (self._settings.server_url or server_url).rstrip("/") + CALLBACK

    def _user_of(self, claims: Mapping[str, Any]) -> str:
        name = self._settings.user_claim
        user = claims.get(name)
        if not isinstance(user, str) or not user or len(user) > LONGEST:
            msg = f"Sign-in failed: the provider sent no claim {name!r} of at most {LONGEST} characters."
            raise Unproven(msg)
        if name == "email" and claims.get("email_verified") is not True:
            msg = "Sign-in failed: the provider has not verified the e-mail address."
            raise Unproven(msg)
        return user

    def _role_of(self, claims: Mapping[str, Any]) -> Role:
        """Return the highest role of the role claim's values. Raises Denied."""
        value: Any = claims
        for part in self._settings.role_claim.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        values = {str(each) for each in value} if isinstance(value, list) else {str(value)}
        roles = {role for name, role in self._roles.items() if name in values}
        found = next((role for role in reversed(ROLES) if role in roles), None)
        if found is None:
            msg = f"Signed in, but no value of the claim {self._settings.role_claim!r} has a role here (oidc.roles)."
            raise Denied(msg)
        return found
