"""The words of HTTP statuses."""

from __future__ import annotations

from http import HTTPStatus

_EARLIER = {
    413: "Request Entity Too Large",
    416: "Requested Range Not Satisfiable",
    422: "Unprocessable Entity",
}
"""Go's words, and Python's before 3.13: both facades say the same, whatever runs them."""


def get_phrase(status: int) -> str:
    return _EARLIER.get(status) or HTTPStatus(status).phrase
