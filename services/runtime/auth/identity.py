"""The tenant and user that a call is made for, as a context variable.

A call's tasks inherit it; work that outlives the call sets it with `acting_as`.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from headrace.errors import Unauthenticated

TENANT, USER, CREDENTIAL = "x-headrace-tenant", "x-headrace-user", "x-headrace-credential"
_NAME = re.compile(r"[!-~]{1,128}")
"""Names that pass unchanged through headers, logs and databases."""


@dataclass(frozen=True, slots=True)
class Identity:
    tenant: str
    user: str
    credential: str = field(default="", compare=False)
    """How the user was proven (`api_key:` or `jwt:` and a name of the credential); empty: by nothing. The same user
    with another credential is the same identity."""

    @classmethod
    def from_stored(cls, tenant: str, user: str) -> Identity:
        """Return a record's identity; one without names predates tenants."""
        return cls(tenant or DEFAULT.tenant, user or DEFAULT.user)

    @property
    def is_valid(self) -> bool:
        names = (self.tenant, self.user, *filter(None, [self.credential]))
        return all(_NAME.fullmatch(name) is not None for name in names)


DEFAULT = Identity("default", "default")
"""Every caller, if credentials are not checked."""

_identity: ContextVar[Identity | None] = ContextVar("identity", default=DEFAULT)
"""The current identity; None for a service on its own account. Outside of calls there is the default."""


def require_identity() -> Identity:
    """Return the current identity; raises Unauthenticated for a service on its own account."""
    identity = _identity.get()
    if identity is None:
        raise Unauthenticated(f"this is somebody's: {TENANT} and {USER} must say whose")
    return identity


def is_own_account() -> bool:
    """Return whether a service calls on its own account."""
    return _identity.get() is None


def current_tenant() -> str:
    identity = _identity.get()
    return identity.tenant if identity is not None else ""


def adopt_identity(identity: Identity | None) -> None:
    _identity.set(identity)


@contextmanager
def acting_as(identity: Identity | None) -> Generator[None]:
    """Work for `identity` inside the block; None is the service's own account."""
    token = _identity.set(identity)
    try:
        yield
    finally:
        _identity.reset(token)


def forward_identity() -> tuple[tuple[str, str], ...]:
    identity = _identity.get()
    if identity is None:
        return ()
    names = (TENANT, identity.tenant), (USER, identity.user)
    return (*names, (CREDENTIAL, identity.credential)) if identity.credential else names
