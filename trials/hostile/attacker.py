"""Sends an attack at a given rate, and reconnects whenever it is disconnected.

`python -m trials.hostile.attacker ATTACK PORT BYTES_PER_S SECONDS` prints the bytes sent and connections made.
"""

import itertools
import socket
import sys
import time

from tests.support.http2.wire import PREFACE, SETTINGS
from trials.hostile.attacks import ATTACKS, QUIET

PIECE_BYTES = 30_000


def main(name: str, port: int, bytes_per_s: float, seconds: float) -> None:
    began, sent, connections = time.monotonic(), 0, 0
    until = began + seconds
    if name == QUIET:
        time.sleep(seconds)
    while time.monotonic() < until:
        connections += 1
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
                connection.sendall(PREFACE + SETTINGS)
                frames = ATTACKS[name]()
                sent += len(PREFACE + SETTINGS)
                while time.monotonic() < until:
                    piece = bytearray()
                    for frame in itertools.islice(frames, 10_000):
                        piece += frame
                        if len(piece) >= PIECE_BYTES:
                            break
                    if not piece:
                        break
                    sent += _send(connection, piece, until)
                    time.sleep(max(0.0, began + sent / bytes_per_s - time.monotonic()))
        except OSError:
            time.sleep(max(0.001, began + sent / bytes_per_s - time.monotonic()))
    sys.stdout.write(f"{sent} {connections}\n")


def _send(connection: socket.socket, piece: bytes | bytearray, until: float) -> int:
    """Send the whole piece while the attack lasts; the other end's answers are discarded."""
    rest = memoryview(piece)
    connection.setblocking(False)
    while rest and time.monotonic() < until:
        try:
            if not connection.recv(1 << 20):
                raise ConnectionResetError
        except BlockingIOError:
            pass
        try:
            rest = rest[connection.send(rest) :]
        except BlockingIOError:
            time.sleep(0.001)
    return len(piece) - len(rest)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4]))
