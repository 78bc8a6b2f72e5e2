"""Errors of a store that refuses, and the errors for callers."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from headrace.errors import Overloaded
from services.runtime.files.disk import make_full_error

if TYPE_CHECKING:
    from headrace.errors import HeadraceError

RETRY_AFTER_S = 5.0
"""Suggested delay before a caller that waited in vain retries."""

PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Statuses after which the same request is sent again."""

FULL = frozenset({"QuotaExceeded", "XMinioStorageFull", "InsufficientCapacity"})


class Passing(OSError):
    """The store could not answer this time."""


class Refused(Exception):
    """The store refuses, and would again."""

    def __init__(self, status: int, code: str) -> None:
        super().__init__(code)
        self.status = status
        self.code = code
        """The store's error code, such as AccessDenied; if it gives none, the status."""


def read_refusal(status: int, body: bytes) -> Refused:
    code = ""
    with suppress(ElementTree.ParseError):  # nothing, or what a proxy says
        code = ElementTree.fromstring(body).findtext(".//{*}Code") or ""
    return Refused(status, code or f"status {status}")


def make_refusal_error(refused: Refused) -> HeadraceError:
    if refused.code in FULL:
        return make_full_error("the bucket of the blobs")
    return make_away_error(refused.code)


def make_away_error(kind: str) -> Overloaded:
    message = f"the bucket of the blobs cannot be used ({kind}); try again later"
    return Overloaded(message, retry_after_s=RETRY_AFTER_S)
