"""Starts TLS handshakes as fast as they are answered, and finishes none.

`python -m trials.hostile.handshakes PORT SECONDS` runs until one was not answered, and prints how many were
answered and how many were not. The greeting is always the same, so that it costs nothing here; the server can
agree to it, so that its answer is signed.
"""

import asyncio
import socket
import ssl
import sys
import time

CROWD = "127.0.0.2"
"""Address of the attackers; honest callers come from 127.0.0.1."""

ATTACK_S = 1.5


def make_greeting(group: str = "") -> bytes:
    """Return a client's first message, with a key share of `group` only."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["h2"])
    if group:
        context.set_ecdh_curve(group)
    out = ssl.MemoryBIO()
    try:
        context.wrap_bio(ssl.MemoryBIO(), out, server_hostname="localhost").do_handshake()
    except ssl.SSLWantReadError:
        return out.read()
    raise AssertionError("unreachable")


async def attack(port: int) -> tuple[int, int]:
    """Return the number of answered and of refused handshakes."""
    attacker = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", __name__, str(port), str(ATTACK_S)), stdout=asyncio.subprocess.PIPE
    )
    printed, _ = await attacker.communicate()
    assert attacker.returncode == 0
    answered, refused = printed.split()
    return int(answered), int(refused)


def main(port: int, seconds: float) -> None:
    greeting, until = make_greeting("prime256v1"), time.monotonic() + seconds
    counts = {True: 0, False: 0}
    while time.monotonic() < until or not counts[False]:
        with socket.socket() as connection:
            connection.settimeout(5)
            connection.bind((CROWD, 0))
            connection.connect(("127.0.0.1", port))
            try:
                connection.sendall(greeting)
                is_answered = bool(connection.recv(1))
            except ConnectionError:
                is_answered = False
        counts[is_answered] += 1
    sys.stdout.write(f"{counts[True]} {counts[False]}\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
