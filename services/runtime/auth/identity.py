"""The tenant and user that a call is made for, as a context variable, and tenants as labels of metrics.

A call's tasks inherit the identity; work that outlives the call sets it with `acting_as`.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import lru_cache

from headrace.errors import PermissionDenied, Unauthenticated
from headrace.v1 import keys_pb2
from services.runtime.auth import identity
from services.runtime.formats.json_form import rules_of

TENANT, USER, CREDENTIAL = "x-headrace-tenant", "x-headrace-user", "x-headrace-credential"
ROLES, SCOPES = "x-headrace-roles", "x-headrace-scopes"
"""Comma-separated words; without SCOPES the caller has DEFAULT_SCOPES."""
MAKERS = "x-headrace-makers"
"""Space-separated names, because users' names may contain commas."""

_GRANTED = keys_pb2.CreateKeyRequest.DESCRIPTOR.fields_by_name["scopes"]

ALL_SCOPES = frozenset(rules_of(_GRANTED).words)
"""Scopes of a credential: ask agents, answer gates, see and end other users' runs, read their content, publish agents,
manage keys and budgets."""

DEFAULT_SCOPES = frozenset({"ask", "answer"})
"""Scopes of a credential that lists none."""

FILED = "file"

ROLES_MAX = 64
MAKERS_MAX = 16
"""Maximum `makers` of a key: users who created each other's keys, and so know its text."""
IDENTITIES_MAX = 1024
"""Maximum identities kept from services' headers: a run makes several calls for one user, and their streams share the
object."""

_ROLE = re.compile(r"[!-+\--~]{1,64}")
_NAME = re.compile(r"[!-~]{1,128}")
"""Names that pass unchanged through headers, logs and databases."""


@dataclass(frozen=True, slots=True)
class Identity:
    tenant: str
    user: str
    credential: str = field(default="", compare=False)
    """How the user was authenticated (`api_key:` or `jwt:` and a name of the credential); empty if not. The same user
    with another credential is the same identity."""
    roles: frozenset[str] = field(default=frozenset(), compare=False)
    """Names of groups that match this user in rules: groups of the directory, or roles in the key's file."""
    scopes: frozenset[str] = field(default=DEFAULT_SCOPES, compare=False)
    """The credential's scopes."""
    key_id: str = field(default="", compare=False)
    """Id of the stored API key presented to this process, FILED for a key of its file; empty if none was presented to
    it."""
    ends_at: int = field(default=0, compare=False)
    """End of the token or session presented to this process, in Unix milliseconds; 0: it does not expire."""

    makers: frozenset[str] = field(default=frozenset(), compare=False)
    """Users who created the API key and so know its text: each of them may be the one who uses it."""

    @classmethod
    @lru_cache(maxsize=IDENTITIES_MAX)
    def from_stored(cls, tenant: str, user: str) -> Identity:
        """Return a record's identity; a record without names is older than tenants."""
        return cls(tenant or DEFAULT.tenant, user or DEFAULT.user)

    @property
    def persons(self) -> frozenset[str]:
        """Users of the tenant who may be behind this identity."""
        return self.makers | {self.user}

    @property
    def is_valid(self) -> bool:
        names = (self.tenant, self.user, *filter(None, [self.credential]), *self.makers)
        if not all(_NAME.fullmatch(name) for name in names) or not self.scopes <= ALL_SCOPES:
            return False
        return len(self.makers) <= MAKERS_MAX and len(self.roles) <= ROLES_MAX and all(map(is_role, self.roles))


DEFAULT = Identity("default", "default", scopes=ALL_SCOPES)
"""Every caller, if credentials are not checked."""

_identity: ContextVar[Identity | None] = ContextVar("identity", default=DEFAULT)
"""The current identity; None for a service on its own account. Outside of calls, the default identity."""


def get_identity() -> Identity | None:
    """Return the current identity; None for a service on its own account."""
    return _identity.get()


def require_identity() -> Identity:
    """Return the current identity; raises Unauthenticated for a service on its own account."""
    identity = _identity.get()
    if identity is None:
        raise Unauthenticated(f"this belongs to a user: {TENANT} and {USER} are required")
    return identity


def require_scope(scope: str) -> Identity:
    """Return the current identity; raises PermissionDenied if its credential lacks `scope`."""
    identity = require_identity()
    check_scope(identity, scope)
    return identity


def check_scope(identity: Identity, scope: str) -> None:
    """Raise PermissionDenied if the identity's credential lacks `scope`."""
    if scope not in identity.scopes:
        raise PermissionDenied(f"this credential has no scope {scope!r}", scope=scope)


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


def is_role(name: str) -> bool:
    return _ROLE.fullmatch(name) is not None


def forward_identity() -> tuple[tuple[str, str], ...]:
    identity = _identity.get()
    if identity is None:
        return ()
    headers = [(TENANT, identity.tenant), (USER, identity.user)]
    if identity.credential:
        headers.append((CREDENTIAL, identity.credential))
    if identity.roles:
        headers.append((ROLES, ",".join(sorted(identity.roles))))
    if identity.scopes != DEFAULT_SCOPES:
        headers.append((SCOPES, ",".join(sorted(identity.scopes))))
    if identity.makers:
        headers.append((MAKERS, " ".join(sorted(identity.makers))))
    return tuple(headers)


def read_forwarded(headers: Mapping[str, str]) -> Identity | None:
    """Return the identity that a service's headers name; None if it is invalid."""
    find = headers.get
    return _build_forwarded(find(TENANT), find(USER), find(CREDENTIAL), find(ROLES), find(SCOPES), find(MAKERS))


@lru_cache(maxsize=IDENTITIES_MAX)
def _build_forwarded(
    tenant: str | None,
    user: str | None,
    credential: str | None,
    roles: str | None,
    scopes: str | None,
    makers: str | None,
) -> Identity | None:
    known = DEFAULT_SCOPES if scopes is None else _split_words(scopes)
    knowing = frozenset(makers.split(" ")) if makers else frozenset[str]()
    identity = Identity(tenant or "", user or "", credential or "", _split_words(roles or ""), known, makers=knowing)
    return identity if identity.is_valid else None


def _split_words(text: str) -> frozenset[str]:
    return frozenset(text.split(",")) if text else frozenset()


TENANTS_MAX = 100
"""Maximum tenants with their own label; later ones share one."""

OTHERS = "(others)"

_seen = {identity.DEFAULT.tenant, ""}


def label_tenant(tenant: str | None = None) -> str:
    if tenant is None:
        tenant = identity.current_tenant()
    if tenant not in _seen:
        if len(_seen) >= TENANTS_MAX:
            return OTHERS
        _seen.add(tenant)
    return tenant
