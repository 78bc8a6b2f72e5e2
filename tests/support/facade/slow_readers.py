"""Clients that stop reading."""

import socket
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import overload

from tests.support.facade.scripted import Step, answering, text

PIECE_BYTES = 1 << 16


def make_post(path: str, body: bytes) -> bytes:
    """Return the request that posts JSON, as it is sent."""
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


class Endless(Sequence[Step]):
    """A run that keeps sending deltas of 64 KiB."""

    def __iter__(self) -> Iterator[Step]:
        yield from answering()[:4]
        for seq in range(5, 10_000):
            yield text(seq, "x" * PIECE_BYTES)

    @overload
    def __getitem__(self, at: int) -> Step: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Step]: ...
    def __getitem__(self, at: int | slice) -> Step | Sequence[Step]:
        raise AssertionError("it is read from its beginning")

    def __len__(self) -> int:
        return 10_000


@contextmanager
def stalled_client(url: str, sent: bytes) -> Generator[None]:
    """Run a client that sends `sent` and then reads nothing, with a small receive buffer."""
    host, _, port = url.removeprefix("http://").rpartition(":")
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect((host, int(port)))
        client.sendall(sent)
        yield
