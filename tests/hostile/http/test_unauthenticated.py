"""The cost of any HTTP without a credential to a facade, and its effect on an honest stream."""

import asyncio
from itertools import product
from pathlib import Path

import pytest

from tests.support.tiers import check_only
from trials.hostile.http.attacks import ATTACKS, SLOW
from trials.hostile.http.trial import FACADES, facade, try_attack
from trials.hostile.pace import CPU_S_PER_CONNECTION, OTHER_WORK, RSS_MB_MAX, measure_mb_s

ATTACK_S = 1.5
TEST_TIMEOUT_S = 300.0

PARSINGS_MAX = 20
"""What a byte costs is bounded, in the time that such a frame takes to be parsed in Python: most are a request's of 45
bytes, which is answered. What an address costs is not."""

PARSINGS_MAX_OF_A_PIECE = 0.002
"""Where each byte comes in a packet of its own, as it does of the slow ones."""

IN_CHECK = {("many headers", "embedded"), ("requests", "embedded"), ("slow heads", "embedded")}


@pytest.mark.parametrize(("name", "which"), check_only(product([*ATTACKS, *SLOW], FACADES), kept=IN_CHECK))
async def test_an_unauthenticated_client_costs_little_and_an_honest_stream_continues(
    tmp_path: Path, name: str, which: str
) -> None:
    async with asyncio.timeout(TEST_TIMEOUT_S), facade(tmp_path, which) as victim:
        cost = await try_attack(victim, name, ATTACK_S)
    cpu_s_max = 0.2 + OTHER_WORK * cost.elapsed_s + cost.connections * CPU_S_PER_CONNECTION
    cpu_s_max += cost.bytes_sent * measure_mb_s() * (PARSINGS_MAX_OF_A_PIECE if name in SLOW else PARSINGS_MAX / 1e6)
    assert cost.is_whole, cost
    assert cost.cpu_s < cpu_s_max, cost
    assert cost.rss_mb < RSS_MB_MAX, cost
