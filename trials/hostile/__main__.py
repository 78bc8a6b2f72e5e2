"""Send each class of attack at 1 MB/s without a credential, then those with a login: [SECONDS [CLASS…]].

Each class is sent for 10 s to a separate service with either transport, and to either facade. Gaps are those of
a concurrent honest stream, in wall time. On a busy machine they include the machine's own delays, so the first
row of each server has no attack. The trial fails if a class costs an honest stream or the process too much.

Attacks with a login use one tenant's ordinary key on a suite in separate processes, while another tenant lists
the agents. The trial fails if that takes more than 0.5 s, memory grows by more than 300 MB, or an attack
succeeds.
"""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from services.runtime.process.transport import TRANSPORTS
from trials.hostile.attacks import ATTACKS, QUIET
from trials.hostile.http.attacks import ATTACKS as HTTP_ATTACKS
from trials.hostile.http.attacks import SLOW
from trials.hostile.http.trial import FACADES, facade
from trials.hostile.http.trial import try_attack as try_http_attack
from trials.hostile.login.attacks import ATTACKS as LOGIN_ATTACKS
from trials.hostile.login.trial import measure_logins
from trials.hostile.trial import Cost, Victim, try_attack, victim

SECONDS = 10.0
GAP_S_MAX = 0.05
"""Maximum p99 gap of an honest stream in excess of that without an attack."""

RSS_MB_MAX = 64

FORMAT = "{:9} {:30} {:>6} {:>6} {:>6} {:>9} {:>9} {:>8}  {}"

NIGHTLY = ["5"]

Serve = Callable[[Path, str], AbstractAsyncContextManager[Victim]]
Attack = Callable[[Victim, str, float], Awaitable[Cost]]


def main(arguments: list[str]) -> int:
    """Return 1 if a class costs too much; on a busy machine, any class may."""
    seconds = float(arguments[0]) if arguments else SECONDS
    named = arguments[1:]
    too_dear = asyncio.run(_measure_all(named, seconds))
    if too_dear:
        print(f"too dear: {'; '.join(too_dear)}")
    return int(bool(too_dear))


async def _measure_all(named: Sequence[str], seconds: float) -> list[str]:
    sides = [(victim, TRANSPORTS, try_attack, [*ATTACKS]), (facade, FACADES, try_http_attack, [*HTTP_ATTACKS, *SLOW])]
    too_dear: list[str] = []
    for serve, servers, attack, classes in sides:
        chosen = [name for name in classes if not named or name in named]
        if chosen or not named:
            too_dear += await _print_rows(serve, servers, attack, [QUIET, *chosen], seconds)
    logins = [name for name in named if name in LOGIN_ATTACKS]
    if logins or not named:
        with tempfile.TemporaryDirectory() as folder:
            too_dear += await measure_logins(Path(folder), logins)
    return too_dear


async def _print_rows(
    serve: Serve, servers: Sequence[str], attack: Attack, classes: Sequence[str], seconds: float
) -> list[str]:
    """Print the rows, and return those that exceed a limit."""
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
    print(FORMAT.format(*cells), flush=True)
