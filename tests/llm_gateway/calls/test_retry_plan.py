"""The commit rule over real HTTP: what is retried, what fails over, what ends the call; then the retry delays."""

import asyncio
from typing import Any

import orjson
import pytest

from headrace.errors import HeadraceError, InvalidRequest, Overloaded, ProviderUnavailable, RateLimited
from services.llm_gateway.calls.retry_plan import (
    ATTEMPT_S_MIN,
    BACKOFF_S,
    BACKOFF_S_MAX,
    RETRY_AFTER_S_MAX,
    RetryPlan,
    Target,
)
from services.llm_gateway.limits.breaker import FAILURES_MAX, Breaker
from services.llm_gateway.protocols.openai.reader import FRAME_BYTES_MAX
from services.llm_gateway.providers.credentials import Credentials
from services.llm_gateway.providers.provider_file import Provider
from tests.support.llm_gateway.answering import HELLO, http_answer
from tests.support.llm_gateway.conversation import SHORT, choose_timeouts
from tests.support.llm_gateway.gateway import Asking, ChatResult, Gateway, provider_entry
from tests.support.timing import within

THRICE: dict[str, Any] = {"retry": {"maxAttempts": 3}}
FALLBACK: dict[str, Any] = {"fallback": ["spare/sim-2"]}
SPARE_SAYS_HELLO = {"match": {"model": "sim-2"}, "steps": [{"content": "hello"}]}
BEFORE_THE_FIRST_DELTA: dict[str, tuple[dict[str, Any], str]] = {
    "408": ({"status": 408}, "PROVIDER_UNAVAILABLE"),
    "409": ({"status": 409}, "PROVIDER_UNAVAILABLE"),
    "429": ({"status": 429}, "RATE_LIMITED"),
    "500": ({"status": 500}, "PROVIDER_UNAVAILABLE"),
    "503": ({"status": 503}, "OVERLOADED"),
    "529": ({"status": 529}, "OVERLOADED"),
    "stall": ({"stall": True}, "STREAM_STALLED"),
    "cut": ({"cut": True}, "PROVIDER_UNAVAILABLE"),
    "end": ({"end": True}, "PROVIDER_UNAVAILABLE"),
    "no JSON": ({"raw": 'data: {"choices":[{"delta":{"content":"hal\n\n'}, "BAD_FRAME"),
    "oversized": ({"raw": "x" * (FRAME_BYTES_MAX + 1)}, "BAD_FRAME"),
    "error in a 200": ({"frame": {"error": {"message": "busy", "code": 503}}}, "OVERLOADED"),
}


def list_attempts(result: ChatResult) -> list[tuple[str, str, int]]:
    return [
        (delta.started.provider, delta.started.model, delta.started.attempt)
        for delta in result.deltas
        if delta.WhichOneof("delta") == "started"
    ]


@pytest.mark.parametrize("fault", BEFORE_THE_FIRST_DELTA)
async def test_a_failure_before_the_first_delta_shows_only_as_a_second_started(asking: Asking, fault: str) -> None:
    step, reason = BEFORE_THE_FIRST_DELTA[fault]
    script = [SPARE_SAYS_HELLO, {"steps": [step]}]
    async with asking(script, spare={}, **FALLBACK, **choose_timeouts(reason)) as gateway:
        result = await gateway.chat()
        await gateway.sim.until_idle()
    assert result.kinds == ["started", "started", "content", "usage", "finish"]
    assert list_attempts(result) == [("sim", "sim-1", 1), ("spare", "sim-2", 2)]
    assert [request.body["model"] for request in gateway.sim.requests] == ["sim-1", "sim-2"]


@pytest.mark.parametrize("fault", BEFORE_THE_FIRST_DELTA)
async def test_the_same_provider_is_retried_first(asking: Asking, fault: str) -> None:
    step, reason = BEFORE_THE_FIRST_DELTA[fault]
    async with asking([{"steps": [step]}], retry={"maxAttempts": 2}, **choose_timeouts(reason)) as gateway:
        result = await gateway.chat()
    assert result.kinds == ["started", "started"]
    assert result.reason == reason
    assert len(gateway.sim.requests) == 2


@pytest.mark.parametrize("fault", [name for name, (step, _) in BEFORE_THE_FIRST_DELTA.items() if "status" not in step])
async def test_a_failure_after_the_first_delta_ends_the_call_with_the_usage_so_far(asking: Asking, fault: str) -> None:
    step, reason = BEFORE_THE_FIRST_DELTA[fault]
    usage = {"usage": {"prompt_tokens": 7, "completion_tokens": 3}}
    script = [SPARE_SAYS_HELLO, {"steps": [{"content": "a"}, usage, step]}]
    async with asking(script, spare={}, **FALLBACK, **THRICE, **choose_timeouts(reason)) as gateway:
        result = await gateway.chat()
    assert result.kinds == ["started", "content", "usage"]
    assert (result.usage.input_tokens, result.usage.output_tokens) == (7, 3)
    assert result.reason == reason
    assert len(gateway.sim.requests) == 1


@pytest.mark.parametrize("first", [{"reasoning": "r"}, {"content": "c"}, {"toolCall": "f", "id": "a"}])
async def test_reasoning_content_and_tool_calls_rule_out_a_retry(asking: Asking, first: dict[str, Any]) -> None:
    script = [SPARE_SAYS_HELLO, {"steps": [first, {"stall": True}]}]
    async with asking(script, spare={}, **FALLBACK, **SHORT) as gateway:
        result = await gateway.chat()
    assert result.kinds[0] == "started"
    assert result.kinds.count("started") == 1
    assert result.reason == "STREAM_STALLED"


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422])
async def test_non_retriable_refusals_are_never_retried(asking: Asking, status: int) -> None:
    async with asking([{"steps": [{"status": status}]}], spare={}, **FALLBACK, **THRICE) as gateway:
        result = await gateway.chat()
    assert result.kinds == ["started"]
    assert len(gateway.sim.requests) == 1


async def test_a_refused_connection_fails_over(asking: Asking) -> None:
    async with asking([SPARE_SAYS_HELLO], baseUrl="http://127.0.0.1:9/v1", spare={}, **FALLBACK) as gateway:
        result = await gateway.chat()
    assert result.content == ["hello"]


async def test_a_second_attempt_that_succeeds_is_the_answer(asking: Asking) -> None:
    async with asking(answers=[http_answer(503), http_answer(500), HELLO], **THRICE) as gateway:
        result = await gateway.chat()
    assert result.kinds == ["started", "started", "started", "content", "usage", "finish"]
    assert [number for _, _, number in list_attempts(result)] == [1, 2, 3]


async def test_a_retry_waits_for_retry_after(asking: Asking) -> None:
    async with asking(answers=[http_answer(429, retry_after="1"), HELLO], **THRICE) as gateway:
        started_s = asyncio.get_running_loop().time()
        result = await gateway.chat()
        took_s = asyncio.get_running_loop().time() - started_s
    assert result.content == ["hello"]
    assert 1 <= took_s < 1 + BACKOFF_S + 0.5


async def test_a_retry_after_above_the_limit_fails_over_at_once(asking: Asking) -> None:
    script = [SPARE_SAYS_HELLO, {"steps": [{"status": 429, "headers": {"Retry-After": "60"}}]}]
    async with asking(script, spare={}, **FALLBACK, **THRICE) as gateway, within(2):
        result = await gateway.chat()
    assert [number for _, _, number in list_attempts(result)] == [1, 2]
    assert result.content == ["hello"]


async def test_fallbacks_are_tried_in_order_each_with_its_own_attempts(asking: Asking) -> None:
    script = [{"steps": [{"status": 503}]}]
    spare = {"retry": {"maxAttempts": 2}}
    fallback = ["spare/sim-2", "sim/idle"]
    async with asking(script, fallback=fallback, retry={"maxAttempts": 2}, spare=spare) as gateway:
        result = await gateway.chat()
    expected = ["sim/sim-1", "sim/sim-1", "spare/sim-2", "spare/sim-2", "sim/idle", "sim/idle"]
    assert [f"{provider}/{model}" for provider, model, _ in list_attempts(result)] == expected
    assert result.reason == "OVERLOADED"


async def test_a_fallback_without_its_key_is_skipped(asking: Asking) -> None:
    spare = {"apiKeys": ["env:NOT_SET"]}
    async with asking([{"steps": [{"status": 503}]}], spare=spare, **FALLBACK) as gateway:
        result = await gateway.chat()
    assert list_attempts(result) == [("sim", "sim-1", 1)]
    assert result.reason == "OVERLOADED"


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (401, ""),
        (400, "API Key not found. Please pass a valid API key."),
        (403, "Your API key was reported as leaked. Please use another API key."),
        (400, "Incorrect API key provided: sk***gA."),
    ],
)
async def test_a_refused_key_falls_back_to_the_next(asking: Asking, status: int, said: str) -> None:
    """Gemini has a status for each cause: https://github.com/Wei-Shaw/sub2api/issues/1709,
    https://github.com/continuedev/continue/issues/11541 (2026). xAI: https://github.com/openai/codex/issues/1352
    (2025-06)."""
    refusal = http_answer(status, orjson.dumps({"error": {"message": said}}), Content_Type="application/json")
    async with asking(answers=[refusal, HELLO], apiKeys=["env:OLD_KEY", "env:NEW_KEY"]) as gateway:
        gateway.env.update(OLD_KEY="old-key-0001", NEW_KEY="new-key-0002")
        result = await gateway.chat()
    assert result.kinds == ["started", "started", "content", "usage", "finish"]
    assert [b"old-key-0001" in head for head in gateway.heads] == [True, False]
    assert b"new-key-0002" in gateway.heads[1]


@pytest.mark.parametrize("step", [{"status": 402}, {"status": 429, "body": {"error": {"code": "insufficient_quota"}}}])
async def test_an_empty_account_falls_back_to_the_next_key_and_then_fails_over(
    asking: Asking, step: dict[str, Any]
) -> None:
    script = [SPARE_SAYS_HELLO, {"steps": [step]}]
    async with asking(script, apiKeys=["env:A", "env:B"], spare={}, **FALLBACK, **THRICE) as gateway:
        gateway.env.update(A="key-a-0001", B="key-b-0002")
        result = await gateway.chat()
    assert result.content == ["hello"]
    assert [model for _, model, _ in list_attempts(result)] == ["sim-1", "sim-1", "sim-2"]


async def test_the_call_ends_when_every_key_is_refused(asking: Asking) -> None:
    async with asking([{"steps": [{"status": 401}]}], apiKeys=["env:A", "env:B"], spare={}, **FALLBACK) as gateway:
        gateway.env.update(A="key-a-0001", B="key-b-0002")
        result = await gateway.chat()
    assert result.kinds == ["started", "started"]
    assert result.reason == "PROVIDER_AUTHENTICATION"


async def open_breaker(gateway: Gateway) -> None:
    for _ in range(FAILURES_MAX):
        await gateway.chat()


@pytest.mark.parametrize("step", [{"status": 503}, {"cut": True}])
async def test_an_open_breaker_fails_the_call_without_a_request(asking: Asking, step: dict[str, Any]) -> None:
    before = [] if "status" in step else [{"content": "a"}]  # failures in mid-stream count like any
    async with asking([{"steps": [*before, step]}]) as gateway:
        await open_breaker(gateway)
        result = await gateway.chat()
    assert result.deltas == []
    assert result.reason == "PROVIDER_UNAVAILABLE"
    assert 0 < (result.failure.retry_after_s or 0) <= 5
    assert len(gateway.sim.requests) == FAILURES_MAX


async def test_an_open_breaker_fails_over_at_once(asking: Asking) -> None:
    script = [SPARE_SAYS_HELLO, {"steps": [{"status": 503}]}]
    async with asking(script, spare={}, **FALLBACK) as gateway:
        await open_breaker(gateway)
        result = await gateway.chat()
        other = await gateway.chat(model="idle-2")
    assert list_attempts(result) == [("spare", "sim-2", 1)]
    assert [provider for provider, _, _ in list_attempts(other)] == ["sim", "spare"], "breakers are per model"


async def test_a_fallback_receives_the_whole_request_with_its_own_model(asking: Asking) -> None:
    script = [SPARE_SAYS_HELLO, {"steps": [{"status": 503}]}]
    async with asking(script, spare={}, **FALLBACK) as gateway:
        await gateway.chat(temperature=0.5)
    first, second = (request.body for request in gateway.sim.requests)
    assert first | {"model": "sim-2"} == second


async def test_a_fallbacks_lower_output_limit_is_applied(asking: Asking) -> None:
    script = [SPARE_SAYS_HELLO, {"steps": [{"status": 503}]}]
    async with asking(script, spare={"models": [{"name": "sim-2", "maxOutput": 100}]}, **FALLBACK) as gateway:
        await gateway.chat(max_tokens=500)
    assert [request.body["max_tokens"] for request in gateway.sim.requests] == [500, 100]


def target(*, attempts_max: int = 3, keys: tuple[str, ...] = ("",)) -> Target:
    entry = provider_entry("http://127.0.0.1:1/v1", retry={"maxAttempts": attempts_max})
    provider = Provider.model_validate(entry)
    endpoint = Credentials({}).find_endpoint(provider, "sim-1", "/chat/completions")
    return Target(provider, provider.models[0], "sim-1", endpoint, keys, Breaker("sim", "sim-1"))


def list_waits(plan: RetryPlan, error: HeadraceError) -> list[float]:
    """Return the delays until the plan gives up and raises `error` itself."""
    delays: list[float] = []
    final: HeadraceError | None = None
    while final is None:
        plan.start_attempt()
        try:
            delays.append(plan.plan_retry(error))
        except HeadraceError as raised:
            final = raised
    assert final is error
    return delays


async def test_backoff_doubles_up_to_its_limit_with_full_jitter() -> None:
    error = Overloaded("busy")
    whole = [min(BACKOFF_S * 2**number, BACKOFF_S_MAX) for number in range(9)]
    assert list_waits(RetryPlan([target(attempts_max=10)], jitter=lambda: 1.0), error) == whole
    assert list_waits(RetryPlan([target(attempts_max=10)], jitter=lambda: 0.0), error) == [0.0] * 9


async def test_retry_after_is_added_to_the_jitter_and_has_a_limit() -> None:
    plan = RetryPlan([target()], jitter=lambda: 1.0)
    assert list_waits(plan, RateLimited("slow down", retry_after_s=2.0)) == [2 + BACKOFF_S, 2 + 2 * BACKOFF_S]
    assert list_waits(RetryPlan([target()]), RateLimited("slow down", retry_after_s=RETRY_AFTER_S_MAX + 1)) == []


async def test_no_wait_exceeds_the_callers_deadline() -> None:
    now_s = asyncio.get_running_loop().time()
    error = RateLimited("slow down", retry_after_s=2.0)
    assert list_waits(RetryPlan([target()], now_s + 2 + ATTEMPT_S_MIN - 0.1, jitter=lambda: 0.0), error) == []
    assert list_waits(RetryPlan([target()], now_s + 2 + ATTEMPT_S_MIN + 0.2, jitter=lambda: 0.0), error) == [2.0, 2.0]


async def test_an_invalid_request_is_final_even_with_fallbacks() -> None:
    assert list_waits(RetryPlan([target(), target()]), InvalidRequest.of("model", "unknown")) == []


def test_keys_are_not_in_the_attempts_repr() -> None:
    plan = RetryPlan([target(keys=("a-secret-key",))])
    planned = plan.start_attempt()
    assert planned.key == "a-secret-key"
    assert "a-secret-key" not in repr(planned)


def test_one_tenants_failures_do_not_block_the_model_for_others() -> None:
    shared = target()
    for _ in range(FAILURES_MAX):
        call = RetryPlan([shared], tenant="a").start_attempt().breaker_call
        shared.breaker.end_call(call, succeeded=False)
    with pytest.raises(ProviderUnavailable, match="circuit breaker pauses calls for 5 s"):
        RetryPlan([shared], tenant="a").start_attempt()
    assert RetryPlan([shared], tenant="b").start_attempt().target is shared
