"""The cost of one unauthenticated address to a service, whatever it sends, and its effect on an honest caller."""

import asyncio
from itertools import product
from pathlib import Path

import pytest

from services.runtime.http2.limits import DEFAULTS
from services.runtime.process.transport import TRANSPORTS
from tests.support.tiers import check_only
from trials.hostile.attacks import ATTACKS
from trials.hostile.pace import CPU_S_PER_CONNECTION, OTHER_WORK, RSS_MB_MAX, find_stall_s_max, measure_mb_s
from trials.hostile.trial import Cost, try_attack, victim

ATTACK_S = 1.5
TEST_TIMEOUT_S = 200.0

PARSINGS_MAX = 8
"""grpcio knows no shares: what a byte costs is bounded there, in the time that small frames take to be parsed in Python
(its own work takes up to 6 of them), and not what an address costs."""

IN_CHECK = {
    ("table bomb", "h2"),
    ("calls without a credential", "h2"),
    ("connections", "h2"),
    ("rapid reset", "h2"),
    ("pings", "h2"),
}
"""One of each kind: header blocks, calls, connections, resets, frames."""


def cpu_s_max(transport: str, cost: Cost) -> float:
    other_s = 0.2 + OTHER_WORK * cost.elapsed_s + cost.connections * CPU_S_PER_CONNECTION
    if transport == "h2":
        return other_s + DEFAULTS.unauthenticated.burst_s + DEFAULTS.unauthenticated.processor_share * cost.elapsed_s
    return other_s + cost.bytes_sent / 1e6 * PARSINGS_MAX * measure_mb_s()


@pytest.mark.parametrize(("name", "transport"), check_only(product(ATTACKS, TRANSPORTS), kept=IN_CHECK))
async def test_an_unauthenticated_peer_costs_little_and_an_honest_stream_continues(
    tmp_path: Path, name: str, transport: str
) -> None:
    async with asyncio.timeout(TEST_TIMEOUT_S), victim(tmp_path, transport) as server:
        cost = await try_attack(server, name, ATTACK_S)
    assert cost.is_whole, cost
    assert cost.cpu_s < cpu_s_max(transport, cost), cost
    assert max(server.stalls_s) < find_stall_s_max(), (cost, server.stalls_s)
    assert cost.rss_mb < RSS_MB_MAX, cost
