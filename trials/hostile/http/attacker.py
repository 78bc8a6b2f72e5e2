"""Sends an attack at a given rate, and reconnects whenever it is disconnected.

`python -m trials.hostile.http.attacker ATTACK PORT BYTES_PER_S SECONDS` prints the bytes sent and connections made.
"""

import socket
import sys
import time
from collections.abc import Iterator

from trials.hostile.attacks import QUIET
from trials.hostile.http.attacks import ATTACKS, SLOW, SLOW_CONNECTIONS


class Connection:
    def __init__(self, port: int, pieces: Iterator[bytes]) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=1)
        self._socket.setblocking(False)
        self._pieces = pieces
        self._rest = b""

    def send(self, bytes_max: int) -> int:
        """Send some bytes, and discard answers; raise OSError after a disconnect, StopIteration at the end."""
        try:
            while True:
                if not self._socket.recv(1 << 20):
                    raise ConnectionResetError
        except BlockingIOError:
            pass
        self._rest = self._rest or next(self._pieces)
        try:
            sent = self._socket.send(self._rest[:bytes_max])
        except BlockingIOError:
            return 0
        self._rest = self._rest[sent:]
        return sent

    def close(self) -> None:
        self._socket.close()


def main(name: str, port: int, bytes_per_s: float, seconds: float) -> None:
    began, sent, made = time.monotonic(), 0, 0
    until = began + seconds
    if name == QUIET:
        time.sleep(seconds)
    places: list[Connection | None] = [None] * (SLOW_CONNECTIONS if name in SLOW else 1)
    piece_bytes = 1 if name in SLOW else 1 << 16
    while time.monotonic() < until:
        taken = 0
        for index, connection in enumerate(places):
            try:
                if connection is None:
                    made += 1
                    pieces = iter([SLOW[name]]) if name in SLOW else ATTACKS[name]()
                    connection = places[index] = Connection(port, pieces)
                taken += connection.send(piece_bytes)
            except (OSError, StopIteration):
                if connection is not None:
                    connection.close()
                places[index] = None
        sent += taken
        ahead_s = began + sent / bytes_per_s - time.monotonic()
        time.sleep(max(0.0, ahead_s) if taken else 0.001)
    sys.stdout.write(f"{sent} {made}\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4]))
