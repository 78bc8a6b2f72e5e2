"""The tenant and user that a call is made for, from its credential alone, in context while the call is served.

Tasks that a call starts inherit it. Work that outlives the call (a run that is taken over) sets it with `acting_as`.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from headrace.errors import Unauthenticated

TENANT, USER = "x-headrace-tenant", "x-headrace-user"
"""The metadata by which a service says for whom it calls."""

_NAME = re.compile(r"[!-~]{1,128}")
"""Names that pass through headers, logs and databases unchanged; UUIDs, e-mail addresses and `auth0|…` match."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A user of a tenant. What belongs to one of them is to every other as if it did not exist."""

    tenant: str
    user: str

    @classmethod
    def from_stored(cls, tenant: str, user: str) -> Identity:
        """Return the identity of a stored record; one without names was written before there were tenants."""
        return cls(tenant or DEFAULT.tenant, user or DEFAULT.user)

    @property
    def is_valid(self) -> bool:
        return _NAME.fullmatch(self.tenant) is not None and _NAME.fullmatch(self.user) is not None


DEFAULT = Identity("default", "default")
"""Everybody, where credentials are not checked."""

_identity: ContextVar[Identity | None] = ContextVar("identity", default=DEFAULT)
"""None: a service on its own account. The default is for what runs outside of calls: tests and tools."""


def require_identity() -> Identity:
    """For whom the work in hand is done.

    Raises:
        Unauthenticated: A service does it on its own account, and asks for what is somebody's.
    """
    identity = _identity.get()
    if identity is None:
        raise Unauthenticated(f"this is somebody's: {TENANT} and {USER} must say whose")
    return identity


def current_tenant() -> str:
    """The current tenant; empty: none."""
    identity = _identity.get()
    return identity.tenant if identity is not None else ""


def adopt_identity(identity: Identity | None) -> None:
    _identity.set(identity)


@contextmanager
def acting_as(identity: Identity | None) -> Generator[None]:
    """Work for `identity` inside the block; tasks that it starts go on so. None: on the service's own account."""
    token = _identity.set(identity)
    try:
        yield
    finally:
        _identity.reset(token)


def forward_identity() -> tuple[tuple[str, str], ...]:
    """Metadata that says for whom a call is made; none on the service's own account."""
    identity = _identity.get()
    return () if identity is None else ((TENANT, identity.tenant), (USER, identity.user))
