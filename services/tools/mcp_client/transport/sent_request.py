"""What the transport saw of one request.

The SDK owns a shared session. It gives a caller only a code and a text, and ends the whole session when the connection
of one request fails. A caller therefore follows its request: the transport writes what became of it into an object of
the caller's context.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

import httpx2

NOT_FOUND, CLIENT_ERROR, SERVER_ERROR = 404, 400, 500


class SentRequest:
    def __init__(self, *, is_opening: bool = False) -> None:
        """While a session is opened, its first failure ends it."""
        self.is_opening = is_opening
        self.note_start(has_session=False)

    def note_start(self, *, has_session: bool) -> None:
        """It is sent: once, or again where the SDK reads on after a cut."""
        self.has_session = has_session
        """Whether it names a session that its server is to know."""
        self.error: httpx2.TransportError | None = None
        """How its connection failed, or why its answer was not read."""
        self.status = 0
        self.is_cut = False
        """Whether its answer, or the stream for it, ended too early."""
        self.is_plain = False
        """Whether its answer was not of the protocol, but of whatever stands before the server."""

    @property
    def may_have_run(self) -> bool:
        """Whether the server may have done what it was asked to, and its answer is lost."""
        return self.is_cut or self.is_plain_failure or not (self.error is None or self.status or self.is_unsent)

    @property
    def is_unsent(self) -> bool:
        return isinstance(self.error, (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout))

    @property
    def is_plain_failure(self) -> bool:
        return self.is_plain and self.status >= SERVER_ERROR

    @property
    def is_unknown_session(self) -> bool:
        """Whether the server has forgotten the session: it has not taken the request then."""
        return self.has_session and self.status == NOT_FOUND

    @property
    def is_refused(self) -> bool:
        """Whether the server has refused it by a status, which may be for the session."""
        return self.has_session and CLIENT_ERROR <= self.status < SERVER_ERROR


CURRENT: ContextVar[SentRequest | None] = ContextVar("sent_request", default=None)


@contextmanager
def follow_request(*, is_opening: bool = False) -> Generator[SentRequest]:
    """Follow the requests of the block, one after the other."""
    sent = SentRequest(is_opening=is_opening)
    token = CURRENT.set(sent)
    try:
        yield sent
    finally:
        CURRENT.reset(token)
