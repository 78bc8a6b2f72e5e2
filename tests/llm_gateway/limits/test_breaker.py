"""The breaker of one model, with a clock that the test moves."""

import asyncio

import orjson
import pytest

from headrace.v1 import llm_pb2
from services.llm_gateway.limits.breaker import (
    FAILED_TENANTS_MAX,
    FAILURES_MAX,
    OPEN_S,
    OPEN_S_MAX,
    OUTCOME_S_MAX,
    PROBE_S,
    Breaker,
    Breakers,
)
from services.llm_gateway.providers.provider_file import Provider
from tests.support.llm_gateway.breakers import Clock, calls
from tests.support.llm_gateway.gateway import Asking, Gateway, provider_entry


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def breaker(clock: Clock) -> Breaker:
    return Breaker("p", "m", clock)


def open_breaker(breaker: Breaker) -> Breaker:
    calls(breaker, *[False] * FAILURES_MAX)
    assert breaker.state == "open"
    return breaker


def test_failures_open_the_breaker_for_a_while(breaker: Breaker) -> None:
    calls(breaker, *[False] * (FAILURES_MAX - 1))
    assert breaker.measure_block_s("a") == 0
    calls(breaker, False)
    assert breaker.measure_block_s("a") == OPEN_S


def test_failures_of_half_the_calls_open_the_breaker_but_a_quarter_does_not(clock: Clock) -> None:
    often, seldom = Breaker("p", "often", clock), Breaker("p", "seldom", clock)
    calls(often, *[True, False] * FAILURES_MAX)
    calls(seldom, *[False, True, True, True] * 20)
    assert (often.state, seldom.state) == ("open", "closed")


def test_outcomes_that_say_nothing_about_the_model_do_not_count(breaker: Breaker) -> None:
    calls(breaker, *[None] * 50, *[False] * (FAILURES_MAX - 1), *[None] * 50)
    assert breaker.state == "closed"


def test_old_failures_no_longer_count(breaker: Breaker, clock: Clock) -> None:
    calls(breaker, *[False] * (FAILURES_MAX - 1))
    clock.now_s += OUTCOME_S_MAX + 1
    calls(breaker, False)
    assert breaker.state == "closed"


def test_one_probe_is_sent_after_the_pause_and_its_success_closes_the_breaker(breaker: Breaker, clock: Clock) -> None:
    open_breaker(breaker)
    clock.now_s += OPEN_S
    assert breaker.measure_block_s("a") == 0
    call = breaker.start_call("a")
    assert (breaker.state, breaker.measure_block_s("a")) == ("half-open", PROBE_S)
    breaker.end_call(call, succeeded=True)
    assert (breaker.state, breaker.measure_block_s("a")) == ("closed", 0)
    calls(breaker, *[False] * (FAILURES_MAX - 1))
    assert breaker.state == "closed"


def test_a_probes_first_delta_lets_the_next_call_through(breaker: Breaker, clock: Clock) -> None:
    """An answer may take minutes, and a model that answers is no reason to refuse calls."""
    open_breaker(breaker)
    clock.now_s += OPEN_S
    probe = breaker.start_call("a")
    clock.now_s += 1
    breaker.note_delta()
    assert breaker.measure_block_s("a") == 0
    breaker.start_call("a")
    assert breaker.measure_block_s("a") == PROBE_S
    breaker.end_call(probe, succeeded=False)
    assert (breaker.state, breaker.measure_block_s("a")) == ("open", 2 * OPEN_S)


def test_each_failed_probe_doubles_the_pause_up_to_a_minute(breaker: Breaker, clock: Clock) -> None:
    open_breaker(breaker)
    pauses: list[float] = []
    for _ in range(6):
        clock.now_s += breaker.measure_block_s("a")
        calls(breaker, False)
        pauses.append(breaker.measure_block_s("a"))
    assert pauses == [10, 20, 40, OPEN_S_MAX, OPEN_S_MAX, OPEN_S_MAX]


def test_a_probe_whose_caller_disconnected_makes_room_for_the_next(breaker: Breaker, clock: Clock) -> None:
    open_breaker(breaker)
    clock.now_s += OPEN_S
    calls(breaker, None)
    assert breaker.measure_block_s("a") == 0


def test_a_long_probe_does_not_block_everybody(breaker: Breaker, clock: Clock) -> None:
    open_breaker(breaker)
    clock.now_s += OPEN_S
    breaker.start_call("a")
    clock.now_s += PROBE_S
    assert breaker.measure_block_s("a") == 0


def test_calls_started_before_the_breaker_opened_change_nothing(breaker: Breaker, clock: Clock) -> None:
    earlier = breaker.start_call("a")
    open_breaker(breaker)
    clock.now_s += 3
    breaker.end_call(earlier, succeeded=False)
    assert breaker.measure_block_s("a") == OPEN_S - 3
    breaker.end_call(earlier, succeeded=True)
    assert breaker.state == "open"


def test_stalls_while_others_are_answered_do_not_open_the_breaker(breaker: Breaker, clock: Clock) -> None:
    stalled = [breaker.start_call("a") for _ in range(FAILURES_MAX)]
    clock.now_s += 5
    breaker.start_call("a")
    breaker.note_delta()
    clock.now_s += 5
    for call in stalled:
        breaker.end_call(call, succeeded=False, never_began=True)
    assert breaker.state == "closed"


def test_stalls_open_the_breaker_when_nobody_is_answered(breaker: Breaker, clock: Clock) -> None:
    breaker.note_delta()
    clock.now_s += 1
    stalled = [breaker.start_call("a") for _ in range(FAILURES_MAX)]
    clock.now_s += 10
    for call in stalled:
        breaker.end_call(call, succeeded=False, never_began=True)
    assert breaker.state == "open"


def test_a_tenant_without_failures_may_probe_and_close_the_breaker_for_all(breaker: Breaker) -> None:
    open_breaker(breaker)
    assert (breaker.measure_block_s("a"), breaker.measure_block_s("b")) == (OPEN_S, 0)
    call = breaker.start_call("b")
    assert breaker.measure_block_s("b") == OPEN_S, "one at a time"
    breaker.end_call(call, succeeded=False)
    assert (breaker.state, breaker.measure_block_s("b"), breaker.measure_block_s("c")) == ("open", OPEN_S, 0)
    calls(breaker, None, tenant="c")
    assert breaker.measure_block_s("c") == 0, "its caller left"
    calls(breaker, True, tenant="c")
    assert breaker.state == "closed"


def test_probes_of_other_tenants_are_limited_during_an_outage(breaker: Breaker) -> None:
    open_breaker(breaker)
    for number in range(FAILED_TENANTS_MAX):
        calls(breaker, False, tenant=f"t-{number}")
    assert breaker.measure_block_s("another") == OPEN_S


def test_breakers_of_removed_models_are_dropped() -> None:
    breakers = Breakers()
    configured, removed = breakers.get_breaker("sim", "sim-1"), breakers.get_breaker("gone", "sim-1")
    breakers.keep_configured([Provider.model_validate(provider_entry("http://127.0.0.1:1/v1"))])
    assert breakers.get_breaker("sim", "sim-1") is configured
    assert breakers.get_breaker("gone", "sim-1") is not removed


async def test_changing_a_providers_entry_resets_its_breaker(asking: Asking) -> None:
    """The failures may be due to a wrong URL that has just been corrected."""
    async with asking([{"steps": [{"status": 503}]}]) as gateway:
        for _ in range(FAILURES_MAX):
            await gateway.chat()
        states = [await _read_breaker(gateway)]
        entry = provider_entry(gateway.sim.base_url, quota={"requestsPerMinute": 600})
        gateway.provider_file.write_bytes(orjson.dumps({"providers": [entry]}))
        async with asyncio.timeout(50):
            while states[-1] != "closed":
                await asyncio.sleep(0.05)
                states.append(await _read_breaker(gateway))
    assert states[0] == "open"


async def _read_breaker(gateway: Gateway) -> str:
    reply = await gateway.llm.ListProviders(llm_pb2.ListProvidersRequest())
    return reply.providers[0].models[0].breaker
