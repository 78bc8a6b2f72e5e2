"""What goes wrong between us and a remote agent, apart from errors that end a run as they are."""

from __future__ import annotations

from headrace.errors import HeadraceError, RemoteFailed

TASK_NOT_FOUND, UNSUPPORTED, AUTH_REQUIRED = "TASK_NOT_FOUND", "UNSUPPORTED_OPERATION", "UNAUTHENTICATED"

WORDS_CHARS_MAX = 300
"""Of what a remote agent says about a failure; errors have some room for words of ours beside."""


class Lost(Exception):
    """The connection has ended, or stayed silent, and the request may have been carried out."""


class Refused(Exception):
    """The remote agent has answered a request with an error of the protocol."""

    def __init__(self, reason: str, words: str) -> None:
        super().__init__(f"{reason}: {words}")
        self.reason = reason
        self.words = words

    def to_error(self, host: str) -> HeadraceError:
        said = f"{self.reason}: {shorten(self.words)}" if self.words else self.reason
        return RemoteFailed(f"the remote agent at {host} refused the request: {said}", remote=host)


def shorten(words: str, chars_max: int = WORDS_CHARS_MAX) -> str:
    """Return words of others on one line, and no longer than an error may be."""
    line = " ".join(words.split())
    return line if len(line) <= chars_max else f"{line[: chars_max - 1]}…"
