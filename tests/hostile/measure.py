"""What each class of attack costs on this machine: `python -m tests.hostile.measure [SECONDS [CLASS…]]`.

Each class is sent at 1 MB/s by a peer without a credential, for 10 s, to a service of its own with either transport.
Gaps are those of an honest stream beside it, in wall time: on a busy machine they are those of the machine, too, so
the first row has no attack.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from services.runtime.process.transport import TRANSPORTS
from tests.hostile.attacks import ATTACKS, QUIET
from tests.hostile.trial import Cost, Victim, try_attack, victim

SECONDS = 10.0
FORMAT = "{:9} {:30} {:>6} {:>6} {:>6} {:>9} {:>9} {:>8}  {}"

Serve = Callable[[Path, str], AbstractAsyncContextManager[Victim]]
Attack = Callable[[Victim, str, float], Awaitable[Cost]]


def print_costs(serve: Serve, servers: Sequence[str], attack: Attack, classes: Sequence[str]) -> None:
    """Print a row for each server and class of attack, for as long and of the classes as the command line says."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS
    asyncio.run(_print_rows(serve, servers, attack, [QUIET, *(sys.argv[2:] or classes)], seconds))


async def _print_rows(
    serve: Serve, servers: Sequence[str], attack: Attack, classes: Sequence[str], seconds: float
) -> None:
    _print("server", "class", "MB", "conns", "CPU %", "CPU s/MB", "gap p99", "RSS MB", "honest stream")
    for server in servers:
        for name in classes:
            with tempfile.TemporaryDirectory() as folder:
                async with serve(Path(folder), server) as one:
                    cost = await attack(one, name, seconds)
            sent_mb = cost.bytes_sent / 1e6
            _print(
                *(server, name, f"{sent_mb:.2f}", str(cost.connections), f"{cost.cpu_s / cost.elapsed_s:.1%}"),
                *(f"{cost.cpu_s / sent_mb:.3f}" if sent_mb else "-", f"{cost.gap_s_p99 * 1000:.1f} ms"),
                *(f"{cost.rss_mb:.1f}", "whole" if cost.is_whole else "CUT"),
            )


def _print(*cells: str) -> None:
    sys.stdout.write(FORMAT.format(*cells) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    print_costs(victim, TRANSPORTS, try_attack, [*ATTACKS])
