"""The section of mode REMOTE: an agent elsewhere that speaks A2A 1.0, and how it is reached."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, field_validator

from services.orchestrator.agents.definition.parts import Part, Positive
from services.orchestrator.agents.definition.sections import Section

AS_STAGE = Section(tool_policy="DISALLOW")
"""The section's stage: no model is asked, so nothing of it is to be set."""

SECRET_PLACES = ("env:", "file:")

SecretName = Annotated[str, StringConstraints(pattern=r"^(env:\w+|file:.+)$", max_length=1024)]
"""Where a secret is: `env:NAME` or `file:/path`; never the secret itself."""

Host = Annotated[str, StringConstraints(pattern=r"^[^\s/@?#\\]+$", max_length=300)]

HeaderName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+$", max_length=128)]
HeaderValue = Annotated[str, StringConstraints(pattern=r"^[\x20-\x7e]+$", max_length=4096)]

_OURS = frozenset(
    {"a2a-version", "accept", "accept-encoding", "connection", "content-length", "content-type", "host"}
    | {"proxy-authorization", "te", "trailer", "transfer-encoding", "upgrade"}
)
"""Headers that belong to the protocol."""

_SECRET_HEADER = re.compile(r"authorization|cookie|key|token|secret|password", re.IGNORECASE)


class RemotePrice(Part):
    """US dollars for a million tokens, by which what a remote task costs is estimated: it tells nobody."""

    input_per_m_tok: Annotated[float, Field(ge=0)] = 0
    """US dollars for a million tokens that are sent."""

    output_per_m_tok: Annotated[float, Field(ge=0)] = 0
    """US dollars for a million tokens of its answers."""


class Remote(Part):
    """The section of mode REMOTE: an agent elsewhere that speaks A2A 1.0. The user's message, or the task of a
    sub-agent, is sent to it as it is, and its answer is the agent's."""

    card: Annotated[str, StringConstraints(pattern=r"^https?://[^\s/?#@\\]+[^\s#@\\]*$", max_length=2048)]
    """Address of its agent card. https and port 443 or 8443 of the public web; other hosts, ports and http where the
    operator has opened them (HEADRACE_ORCHESTRATOR_REMOTE_ALLOW)."""

    token: SecretName | None = None
    """Where its bearer token is: `env:NAME`, a variable of the orchestrator's environment, or `file:/path`. It is
    looked up at each request and sent as `Authorization: Bearer …`, to no other host than the card's and `hosts`."""

    headers: Annotated[dict[HeaderName, HeaderValue], Field(max_length=20)] = Field(default_factory=dict)
    """Further headers of each request, by name, sent where the token is. A value `env:NAME` or `file:/path` is looked
    up; those of headers that carry secrets must be."""

    hosts: Annotated[tuple[Host, ...], Field(max_length=10)] = ()
    """Further hosts, each `host` or `host:port`, at which its card may say that it is served, and which then get the
    token and headers, too. Left out, the card's own host alone."""

    effect: Literal["once", "idempotent"] = "once"
    """What happens when it is not known whether a message has reached it, as a connection or this process has ended in
    between: with `once` a person is asked whether it is to be sent again, with `idempotent` it is, under the same
    messageId. Agents of Headrace take that for one message."""

    request_timeout_ms: Annotated[Positive, Field(le=600_000)] = 30_000
    """Time in milliseconds for the card, and until a request is answered or its stream has begun."""

    silence_timeout_ms: Annotated[Positive, Field(le=3_600_000)] = 60_000
    """Time in milliseconds for which a stream may be silent; then its task is asked for, and followed anew."""

    question_timeout_ms: Annotated[Positive, Field(le=604_800_000)] = 300_000
    """Time in milliseconds that the user has for an answer to what it asks. Over it its task is cancelled, and the run
    fails with REMOTE_FAILED."""

    max_answer_bytes: Annotated[Positive, Field(le=16 * 1024 * 1024)] = 1024 * 1024
    """Size of its answer, and of anything else that it says at once, at most."""

    price: RemotePrice | None = None
    """Left out, a run with `budget.maxCostUsd` fails with PRICE_UNKNOWN, unless `budget.unknownPrice` says
    otherwise."""

    @field_validator("headers")
    @classmethod
    def _check_headers(cls, headers: dict[str, str]) -> dict[str, str]:
        for name, value in headers.items():
            if name.lower() in _OURS:
                raise ValueError(f"{name}: is the protocol's own")
            if _SECRET_HEADER.search(name) and not value.startswith(SECRET_PLACES):
                raise ValueError(f"{name}: must be env:NAME or file:/path, as it carries a secret")
        return headers

    @property
    def names_secrets(self) -> bool:
        """Whether anything is looked up in the orchestrator's environment or files."""
        return self.token is not None or any(value.startswith(SECRET_PLACES) for value in self.headers.values())
