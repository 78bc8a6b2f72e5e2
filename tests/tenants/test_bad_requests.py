"""Whatever request an RPC gets, it answers or refuses with a reason, and the services stay usable.

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
"""Names of an agent, a provider, a model, tools, a skill and so on."""

IN_ORDER = sorted(RPCS, key=lambda name: name.endswith("DeleteChat"))
"""All RPCs; those that delete a chat come last."""

AT_ONCE = 20
CALL_S = 150.0
"""Timeout of a reply; a stream is closed after its first message."""


@pytest.mark.parametrize("name", IN_ORDER)
@pytest.mark.parametrize("share", check_first([0.2, 1.0]))
async def test_any_request_is_answered_or_refused_with_a_reason(
    name: str, share: float, ground: Ground, request: pytest.FixtureRequest
) -> None:
    rpc = RPCS[name]
    requests: int = request.config.getoption("--bad-requests")  # pyright: ignore[reportAssignmentType] - it has a default
    count = round(share * requests)
    gate, outcomes = asyncio.Semaphore(AT_ONCE), Counter[str]()

    async def one(messages: list[bytes]) -> None:
        async with gate, asyncio.timeout(CALL_S):
            outcomes[await outcome(ground.channels[rpc.containing_service.name], rpc, messages)] += 1

    async with ground.ids() as known:
        bad_requests = BadRequests(name, known, NAMES)
        with acting_as(ADA):
            async with asyncio.TaskGroup() as group:
                for _ in range(count):
                    group.create_task(one(bad_requests.of(rpc)))
    assert outcomes.total() == count
    assert not {code for code in outcomes if code.startswith(("UNKNOWN", "INTERNAL", "without a reason"))}, outcomes


async def test_the_suite_still_answers_after_all_bad_requests(ground: Ground) -> None:
    await ground.suite.ask(ADA, "still there?")
