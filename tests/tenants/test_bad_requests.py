"""Whatever an RPC is sent, it answers, or refuses with a reason; and everything goes on.

`python -m trials fuzz` sends more.
"""

import asyncio
from collections import Counter

import pytest

from services.runtime.auth.identity import acting_as
from tests.support.contract import RPCS
from tests.support.tenants.bad_requests import BadRequests
from tests.support.tenants.ground import Ground, outcome
from tests.support.tenants.suite import ADA
from tests.support.tiers import check_first

pytestmark = pytest.mark.asyncio(loop_scope="module")

NAMES = ["plain", "scripted", "m", "city_datetime", "write_file", "letter", "user", "main", "uploads/notes.txt"]
"""Of an agent, a provider, a model, tools, a skill and so on."""

IN_ORDER = sorted(RPCS, key=lambda name: name.endswith("DeleteChat"))
"""What there is stays there until all others have been tried."""

AT_ONCE = 20
CALL_S = 150.0
"""An answer may take as long; a stream is left after its first message."""


@pytest.mark.parametrize("name", IN_ORDER)
@pytest.mark.parametrize("share", check_first([0.2, 1.0]))
async def test_any_request_is_answered_or_refused_with_a_reason(
    name: str, share: float, ground: Ground, request: pytest.FixtureRequest
) -> None:
    rpc = RPCS[name]
    requests: int = request.config.getoption("--bad-requests")  # pyright: ignore[reportAssignmentType] - it has a default
    count = round(share * requests)
    gate, seen = asyncio.Semaphore(AT_ONCE), Counter[str]()

    async def one(messages: list[bytes]) -> None:
        async with gate, asyncio.timeout(CALL_S):
            seen[await outcome(ground.channels[rpc.containing_service.name], rpc, messages)] += 1

    async with ground.ids() as known:
        made = BadRequests(name, known, NAMES)
        with acting_as(ADA):
            async with asyncio.TaskGroup() as group:
                for _ in range(count):
                    group.create_task(one(made.of(rpc)))
    assert seen.total() == count
    assert not {code for code in seen if code.startswith(("UNKNOWN", "INTERNAL", "without a reason"))}, seen


async def test_and_everything_goes_on(ground: Ground) -> None:
    await ground.suite.ask(ADA, "still there?")
