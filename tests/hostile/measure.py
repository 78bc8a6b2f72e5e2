"""What each class of attack costs on this machine: `python -m tests.hostile.measure [SECONDS [CLASS…]]`.

Each class is sent at 1 MB/s by a peer without a credential, for 10 s, to a service of its own with either transport.
Gaps are those of an honest stream beside it, in wall time: on a busy machine they are those of the machine, too, so
the first row of each server has no attack. Ends with 1 where a class costs an honest stream or the process too much.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from services.runtime.process.transport import TRANSPORTS
from trials.hostile.attacks import ATTACKS, QUIET
from trials.hostile.trial import Cost, Victim, try_attack, victim

SECONDS = 10.0
GAP_S_MAX = 0.05
"""Gap p99 of an honest stream beyond that without an attack."""

RSS_MB_MAX = 64

FORMAT = "{:9} {:30} {:>6} {:>6} {:>6} {:>9} {:>9} {:>8}  {}"

Serve = Callable[[Path, str], AbstractAsyncContextManager[Victim]]
Attack = Callable[[Victim, str, float], Awaitable[Cost]]


def print_costs(serve: Serve, servers: Sequence[str], attack: Attack, classes: Sequence[str]) -> None:
    """Print a row for each server and class of attack, for as long and of the classes as the command line says."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS
    too_dear = asyncio.run(_print_rows(serve, servers, attack, [QUIET, *(sys.argv[2:] or classes)], seconds))
    if too_dear:
        sys.exit(f"too dear: {'; '.join(too_dear)}")


async def _print_rows(
    serve: Serve, servers: Sequence[str], attack: Attack, classes: Sequence[str], seconds: float
) -> list[str]:
    """Return the rows that are beyond a limit."""
    too_dear: list[str] = []
    _print("server", "class", "MB", "conns", "CPU %", "CPU s/MB", "gap p99", "RSS MB", "honest stream")
    for server in servers:
        quiet_gap_s = 0.0
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
            if name == QUIET:
                quiet_gap_s = cost.gap_s_p99
            elif not cost.is_whole or cost.rss_mb >= RSS_MB_MAX or cost.gap_s_p99 - quiet_gap_s >= GAP_S_MAX:
                too_dear.append(f"{server}, {name}")
    return too_dear


def _print(*cells: str) -> None:
    sys.stdout.write(FORMAT.format(*cells) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    print_costs(victim, TRANSPORTS, try_attack, [*ATTACKS])
