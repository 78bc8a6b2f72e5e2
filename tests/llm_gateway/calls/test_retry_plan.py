"""The commit rule over real HTTP: what is repeated, what falls over, what ends; then the waits, by themselves."""

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
from tests.support.llm_gateway.conversation import SHORT
from tests.support.llm_gateway.gateway import Asking, Gateway, Heard, provider_entry
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


def attempts(heard: Heard) -> list[tuple[str, str, int]]:
    return [
        (delta.started.provider, delta.started.model, delta.started.attempt)
        for delta in heard.deltas
        if delta.WhichOneof("delta") == "started"
    ]


@pytest.mark.parametrize("fault", BEFORE_THE_FIRST_DELTA)
async def test_before_the_first_delta_the_caller_sees_only_a_second_started(asking: Asking, fault: str) -> None:
    step, _ = BEFORE_THE_FIRST_DELTA[fault]
    script = [SPARE_SAYS_HELLO, {"steps": [step]}]
    async with asking(script, spare={}, **FALLBACK, **SHORT) as gateway:
        heard = await gateway.hear()
        await gateway.sim.until_idle()
    assert heard.kinds == ["started", "started", "content", "usage", "finish"]
    assert attempts(heard) == [("sim", "sim-1", 1), ("spare", "sim-2", 2)]
    assert [request.body["model"] for request in gateway.sim.requests] == ["sim-1", "sim-2"]


@pytest.mark.parametrize("fault", BEFORE_THE_FIRST_DELTA)
async def test_the_same_provider_is_asked_again_first(asking: Asking, fault: str) -> None:
    step, reason = BEFORE_THE_FIRST_DELTA[fault]
    async with asking([{"steps": [step]}], retry={"maxAttempts": 2}, **SHORT) as gateway:
        heard = await gateway.hear()
    assert heard.kinds == ["started", "started"]
    assert heard.reason == reason
    assert len(gateway.sim.requests) == 2


@pytest.mark.parametrize("fault", [name for name, (step, _) in BEFORE_THE_FIRST_DELTA.items() if "status" not in step])
async def test_after_the_first_delta_it_ends_typed_with_the_usage_so_far(asking: Asking, fault: str) -> None:
    step, reason = BEFORE_THE_FIRST_DELTA[fault]
    usage = {"usage": {"prompt_tokens": 7, "completion_tokens": 3}}
    script = [SPARE_SAYS_HELLO, {"steps": [{"content": "a"}, usage, step]}]
    async with asking(script, spare={}, **FALLBACK, **THRICE, **SHORT) as gateway:
        heard = await gateway.hear()
    assert heard.kinds == ["started", "content", "usage"]
    assert (heard.usage.input_tokens, heard.usage.output_tokens) == (7, 3)
    assert heard.reason == reason
    assert len(gateway.sim.requests) == 1


@pytest.mark.parametrize("first", [{"reasoning": "r"}, {"content": "c"}, {"toolCall": "f", "id": "a"}])
async def test_reasoning_content_and_tool_calls_commit(asking: Asking, first: dict[str, Any]) -> None:
    script = [SPARE_SAYS_HELLO, {"steps": [first, {"stall": True}]}]
    async with asking(script, spare={}, **FALLBACK, **SHORT) as gateway:
        heard = await gateway.hear()
    assert heard.kinds[0] == "started"
    assert heard.kinds.count("started") == 1
    assert heard.reason == "STREAM_STALLED"


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422])
async def test_other_refusals_are_never_sent_again(asking: Asking, status: int) -> None:
    async with asking([{"steps": [{"status": status}]}], spare={}, **FALLBACK, **THRICE) as gateway:
        heard = await gateway.hear()
    assert heard.kinds == ["started"]
    assert len(gateway.sim.requests) == 1


async def test_a_connection_that_is_refused_falls_over(asking: Asking) -> None:
    async with asking([SPARE_SAYS_HELLO], baseUrl="http://127.0.0.1:9/v1", spare={}, **FALLBACK) as gateway:
        heard = await gateway.hear()
    assert heard.content == ["hello"]


async def test_a_second_attempt_that_succeeds_is_the_answer(asking: Asking) -> None:
    async with asking(answers=[http_answer(503), http_answer(500), HELLO], **THRICE) as gateway:
        heard = await gateway.hear()
    assert heard.kinds == ["started", "started", "started", "content", "usage", "finish"]
    assert [number for _, _, number in attempts(heard)] == [1, 2, 3]


async def test_retry_after_is_waited_for(asking: Asking) -> None:
    async with asking(answers=[http_answer(429, retry_after="1"), HELLO], **THRICE) as gateway:
        started_s = asyncio.get_running_loop().time()
        heard = await gateway.hear()
        took_s = asyncio.get_running_loop().time() - started_s
    assert heard.content == ["hello"]
    assert 1 <= took_s < 1 + BACKOFF_S + 0.5


async def test_a_retry_after_beyond_the_bound_goes_to_the_fallback_at_once(asking: Asking) -> None:
    script = [SPARE_SAYS_HELLO, {"steps": [{"status": 429, "headers": {"Retry-After": "60"}}]}]
    async with asking(script, spare={}, **FALLBACK, **THRICE) as gateway, within(2):
        heard = await gateway.hear()
    assert [number for _, _, number in attempts(heard)] == [1, 2]
    assert heard.content == ["hello"]


async def test_fallbacks_are_asked_in_order_each_with_its_own_attempts(asking: Asking) -> None:
    script = [{"steps": [{"status": 503}]}]
    spare = {"retry": {"maxAttempts": 2}}
    fallback = ["spare/sim-2", "sim/idle"]
    async with asking(script, fallback=fallback, retry={"maxAttempts": 2}, spare=spare) as gateway:
        heard = await gateway.hear()
    asked = ["sim/sim-1", "sim/sim-1", "spare/sim-2", "spare/sim-2", "sim/idle", "sim/idle"]
    assert [f"{provider}/{model}" for provider, model, _ in attempts(heard)] == asked
    assert heard.reason == "OVERLOADED"


async def test_a_fallback_without_its_key_is_left_out(asking: Asking) -> None:
    spare = {"apiKeys": ["env:NOT_SET"]}
    async with asking([{"steps": [{"status": 503}]}], spare=spare, **FALLBACK) as gateway:
        heard = await gateway.hear()
    assert attempts(heard) == [("sim", "sim-1", 1)]
    assert heard.reason == "OVERLOADED"


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (401, ""),
        (400, "API Key not found. Please pass a valid API key."),
        (403, "Your API key was reported as leaked. Please use another API key."),
        (400, "Incorrect API key provided: sk***gA."),
    ],
)
async def test_a_refused_key_gives_way_to_the_next(asking: Asking, status: int, said: str) -> None:
    """Gemini has a status for each cause: https://github.com/Wei-Shaw/sub2api/issues/1709,
    https://github.com/continuedev/continue/issues/11541 (2026). xAI: https://github.com/openai/codex/issues/1352
    (2025-06)."""
    refusal = http_answer(status, orjson.dumps({"error": {"message": said}}), Content_Type="application/json")
    async with asking(answers=[refusal, HELLO], apiKeys=["env:OLD_KEY", "env:NEW_KEY"]) as gateway:
        gateway.env.update(OLD_KEY="old-key-0001", NEW_KEY="new-key-0002")
        heard = await gateway.hear()
    assert heard.kinds == ["started", "started", "content", "usage", "finish"]
    assert [b"old-key-0001" in head for head in gateway.heads] == [True, False]
    assert b"new-key-0002" in gateway.heads[1]


@pytest.mark.parametrize("step", [{"status": 402}, {"status": 429, "body": {"error": {"code": "insufficient_quota"}}}])
async def test_an_empty_account_gives_way_to_the_next_key_and_then_to_another_provider(
    asking: Asking, step: dict[str, Any]
) -> None:
    script = [SPARE_SAYS_HELLO, {"steps": [step]}]
    async with asking(script, apiKeys=["env:A", "env:B"], spare={}, **FALLBACK, **THRICE) as gateway:
        gateway.env.update(A="key-a-0001", B="key-b-0002")
        heard = await gateway.hear()
    assert heard.content == ["hello"]
    assert [model for _, model, _ in attempts(heard)] == ["sim-1", "sim-1", "sim-2"]


async def test_when_every_key_is_refused_the_call_ends(asking: Asking) -> None:
    async with asking([{"steps": [{"status": 401}]}], apiKeys=["env:A", "env:B"], spare={}, **FALLBACK) as gateway:
        gateway.env.update(A="key-a-0001", B="key-b-0002")
        heard = await gateway.hear()
    assert heard.kinds == ["started", "started"]
    assert heard.reason == "PROVIDER_AUTHENTICATION"


async def open_breaker(gateway: Gateway) -> None:
    for _ in range(FAILURES_MAX):
        await gateway.hear()


@pytest.mark.parametrize("step", [{"status": 503}, {"cut": True}])
async def test_an_open_breaker_ends_the_call_typed_without_asking(asking: Asking, step: dict[str, Any]) -> None:
    before = [] if "status" in step else [{"content": "a"}]  # failures in mid-stream count like any
    async with asking([{"steps": [*before, step]}]) as gateway:
        await open_breaker(gateway)
        heard = await gateway.hear()
    assert heard.deltas == []
    assert heard.reason == "PROVIDER_UNAVAILABLE"
    assert 0 < (heard.failure.retry_after_s or 0) <= 5
    assert len(gateway.sim.requests) == FAILURES_MAX


async def test_an_open_breaker_goes_to_the_fallback_at_once(asking: Asking) -> None:
    script = [SPARE_SAYS_HELLO, {"steps": [{"status": 503}]}]
    async with asking(script, spare={}, **FALLBACK) as gateway:
        await open_breaker(gateway)
        heard = await gateway.hear()
        other = await gateway.hear(model="idle-2")
    assert attempts(heard) == [("spare", "sim-2", 1)]
    assert [provider for provider, _, _ in attempts(other)] == ["sim", "spare"], "breakers are per model"


async def test_the_fallback_gets_its_own_model_and_the_whole_request(asking: Asking) -> None:
    script = [SPARE_SAYS_HELLO, {"steps": [{"status": 503}]}]
    async with asking(script, spare={}, **FALLBACK) as gateway:
        await gateway.hear(temperature=0.5)
    first, second = (request.body for request in gateway.sim.requests)
    assert first | {"model": "sim-2"} == second


async def test_a_fallback_that_writes_less_is_asked_for_less(asking: Asking) -> None:
    script = [SPARE_SAYS_HELLO, {"steps": [{"status": 503}]}]
    async with asking(script, spare={"models": [{"name": "sim-2", "maxOutput": 100}]}, **FALLBACK) as gateway:
        await gateway.hear(max_tokens=500)
    assert [request.body["max_tokens"] for request in gateway.sim.requests] == [500, 100]


def target(*, attempts_max: int = 3, keys: tuple[str, ...] = ("",)) -> Target:
    entry = provider_entry("http://127.0.0.1:1/v1", retry={"maxAttempts": attempts_max})
    provider = Provider.model_validate(entry)
    endpoint = Credentials({}).find_endpoint(provider, "sim-1", "/chat/completions")
    return Target(provider, provider.models[0], "sim-1", endpoint, keys, Breaker("sim", "sim-1"))


def waits(course: RetryPlan, error: HeadraceError) -> list[float]:
    """The waits until the course gives up with `error` itself."""
    found: list[float] = []
    final: HeadraceError | None = None
    while final is None:
        course.start_attempt()
        try:
            found.append(course.plan_retry(error))
        except HeadraceError as raised:
            final = raised
    assert final is error
    return found


async def test_backoff_doubles_to_its_bound_and_is_jittered_from_nothing() -> None:
    error = Overloaded("busy")
    whole = [min(BACKOFF_S * 2**number, BACKOFF_S_MAX) for number in range(9)]
    assert waits(RetryPlan([target(attempts_max=10)], jitter=lambda: 1.0), error) == whole
    assert waits(RetryPlan([target(attempts_max=10)], jitter=lambda: 0.0), error) == [0.0] * 9


async def test_retry_after_comes_before_the_jitter_and_has_a_bound() -> None:
    course = RetryPlan([target()], jitter=lambda: 1.0)
    assert waits(course, RateLimited("slow down", retry_after_s=2.0)) == [2 + BACKOFF_S, 2 + 2 * BACKOFF_S]
    assert waits(RetryPlan([target()]), RateLimited("slow down", retry_after_s=RETRY_AFTER_S_MAX + 1)) == []


async def test_no_wait_goes_beyond_the_callers_deadline() -> None:
    now_s = asyncio.get_running_loop().time()
    error = RateLimited("slow down", retry_after_s=2.0)
    assert waits(RetryPlan([target()], now_s + 2 + ATTEMPT_S_MIN - 0.1, jitter=lambda: 0.0), error) == []
    assert waits(RetryPlan([target()], now_s + 2 + ATTEMPT_S_MIN + 0.2, jitter=lambda: 0.0), error) == [2.0, 2.0]


async def test_a_callers_mistake_is_final_even_with_fallbacks() -> None:
    assert waits(RetryPlan([target(), target()]), InvalidRequest.of("model", "unknown")) == []


def test_keys_show_nowhere() -> None:
    course = RetryPlan([target(keys=("a-secret-key",))])
    planned = course.start_attempt()
    assert planned.key == "a-secret-key"
    assert "a-secret-key" not in repr(planned)


def test_one_tenants_failures_leave_the_model_to_others() -> None:
    shared = target()
    for _ in range(FAILURES_MAX):
        call = RetryPlan([shared], tenant="a").start_attempt().breaker_call
        shared.breaker.end_call(call, succeeded=False)
    with pytest.raises(ProviderUnavailable, match="circuit breaker pauses calls for 5 s"):
        RetryPlan([shared], tenant="a").start_attempt()
    assert RetryPlan([shared], tenant="b").start_attempt().target is shared
