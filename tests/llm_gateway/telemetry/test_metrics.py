"""The gateway's metrics, as differences in the process's registry, and a span for each attempt."""

import pytest
from opentelemetry.trace import SpanKind
from opentelemetry.trace.status import StatusCode
from prometheus_client import REGISTRY

from headrace.streams import reading
from services.llm_gateway.limits.breaker import FAILURES_MAX
from services.llm_gateway.telemetry.attempt_span import find_vendor
from tests.support.llm_gateway.gateway import Asking
from tests.support.spans import recording

SIM = {"provider": "sim", "model": "sim-1"}


class Counted:
    """Returns how much a metric has grown since it was created."""

    def __init__(self, start: str = "headrace_llm", end: str = "") -> None:
        self._start, self._end = start, end
        self._before = {(s.name, *sorted(s.labels.items())): s.value for m in REGISTRY.collect() for s in m.samples}

    def __call__(self, name: str, **labels: str) -> float:
        key = (f"{self._start}_{name}{self._end}", *sorted(labels.items()))
        return (REGISTRY.get_sample_value(key[0], labels) or 0.0) - self._before.get(key, 0.0)


async def test_an_answer_counts_its_tokens_and_the_time_to_its_first_delta(asking: Asking) -> None:
    counted, observed = Counted(), Counted("gen_ai_client", "_sum")
    usage = {"usage": {"prompt_tokens": 11, "completion_tokens": 7}}
    async with asking([{"steps": [{"waitMs": 60}, {"content": "a"}, {"waitMs": 100}, usage]}]) as gateway:
        await gateway.chat()
    assert counted("attempts_total", outcome="stop", **SIM) == 1
    assert counted("tokens_total", kind="input", tenant="default", **SIM) == 11
    assert counted("tokens_total", kind="output", tenant="default", **SIM) == 7
    assert counted("deltas_total", **SIM) == 1
    assert counted("first_delta_seconds_count", **SIM) == 1
    gen_ai = {"gen_ai_operation_name": "chat", "gen_ai_provider_name": "openai", "gen_ai_request_model": "sim-1"}
    assert observed("operation_duration_seconds", **gen_ai, server_address="127.0.0.1", error_type="") >= 0.06
    assert observed("token_usage", **gen_ai, gen_ai_token_type="input") == 11
    assert observed("token_usage", **gen_ai, gen_ai_token_type="output") == 7
    assert 0.06 <= counted("first_delta_seconds_sum", **SIM) < 0.16


async def test_an_attempt_whose_caller_disconnects_is_not_a_failure(asking: Asking) -> None:
    observed = Counted("gen_ai_client", "_count")
    async with asking() as gateway:
        async with reading(gateway.llm.StreamChat(gateway.request(model="idle"))) as running:
            await anext(running)
        await gateway.sim.until_idle()
    gen_ai = {"gen_ai_operation_name": "chat", "gen_ai_provider_name": "openai", "gen_ai_request_model": "idle"}
    assert observed("operation_duration_seconds", **gen_ai, server_address="127.0.0.1", error_type="") == 1


async def test_retries_failovers_and_the_breaker_are_counted(asking: Asking) -> None:
    counted = Counted()
    script = [{"match": {"model": "sim-2"}, "steps": [{"content": "a"}]}, {"steps": [{"status": 503}]}]
    async with asking(script, retry={"maxAttempts": 2}, spare={}, fallback=["spare/sim-2"]) as gateway:
        for _ in range(FAILURES_MAX // 2 + 1):
            await gateway.chat()
    assert counted("attempts_total", outcome="OVERLOADED", **SIM) == FAILURES_MAX
    assert counted("retries_total", reason="OVERLOADED", **SIM) == FAILURES_MAX // 2
    assert counted("failovers_total", reason="OVERLOADED", **SIM) == FAILURES_MAX // 2 + 1
    assert REGISTRY.get_sample_value("headrace_llm_breaker_state", SIM) == 2


async def test_the_open_streams_and_queue_gauges_return_to_zero(asking: Asking) -> None:
    counted = Counted()
    async with asking(quota={"concurrency": 1}) as gateway:
        async with reading(gateway.llm.StreamChat(gateway.request(model="idle"))) as running:
            await anext(running)
            async with reading(gateway.llm.StreamChat(gateway.request(model="idle"))) as waiting:
                await anext(waiting)
                assert counted("open_streams") == 2
                assert counted("queue_length", provider="sim") == 1
        await gateway.sim.until_idle()
    assert counted("open_streams") == 0
    assert counted("queue_length", provider="sim") == 0


async def test_an_invented_model_name_is_not_a_label(asking: Asking) -> None:
    async with asking() as gateway:
        await gateway.chat(model="sim-1-made-up")
    labels = [sample.labels.get("model") for metric in REGISTRY.collect() for sample in metric.samples]
    assert "sim-1-made-up" not in labels


STREAM_CHAT = "headrace.v1.LlmService/StreamChat"
PRICED = {"name": "sim-2", "price": {"inputPerMTok": 2, "outputPerMTok": 10}}


async def test_each_attempt_is_a_span_and_the_last_has_the_answers_cost(asking: Asking) -> None:
    labels = {"provider": "spare", "model": "sim-2", "tenant": "default"}
    before = REGISTRY.get_sample_value("headrace_llm_cost_usd_total", labels) or 0.0
    usage = {"usage": {"prompt_tokens": 100, "completion_tokens": 20}}
    script = [
        {"match": {"model": "sim-2"}, "steps": [{"content": ["the", "secret"]}, usage]},
        {"steps": [{"status": 503}]},
    ]
    with recording() as recorded:
        async with asking(script, spare={"models": [PRICED]}, fallback=["spare/sim-2"]) as gateway:
            result = await gateway.chat(stage="react")
            await recorded.until(lambda: STREAM_CHAT in recorded.names)
    assert result.content == ["the", "secret"]
    failed, answered = recorded.only("chat sim-1"), recorded.only("chat sim-2")
    assert failed.attributes is not None
    assert answered.attributes is not None
    assert [recorded.above(span) for span in (failed, answered)] == [[STREAM_CHAT], [STREAM_CHAT]]
    assert (failed.status.status_code, failed.attributes["error.type"]) == (StatusCode.ERROR, "OVERLOADED")
    assert (answered.kind, answered.status.status_code) == (SpanKind.CLIENT, StatusCode.UNSET)
    attributes = dict(answered.attributes)
    first_chunk_s = attributes.pop("gen_ai.response.time_to_first_chunk")
    assert isinstance(first_chunk_s, float)
    assert 0 < first_chunk_s < 5
    assert str(attributes.pop("gen_ai.response.id")).startswith("chatcmpl-")
    assert isinstance(attributes.pop("server.port"), int)
    assert attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "sim-2",
        "gen_ai.request.stream": True,
        "gen_ai.response.model": "sim-2",
        "server.address": "127.0.0.1",
        "headrace.provider": "spare",
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.output_tokens": 20,
        "headrace.stage": "react",
        "headrace.attempt": 2,
        "headrace.deltas": 2,
        "headrace.cost_usd": 0.0004,
    }
    assert not any("secret" in span.to_json() or "hello" in span.to_json() for span in recorded.spans)
    after = REGISTRY.get_sample_value("headrace_llm_cost_usd_total", labels) or 0.0
    assert abs(after - before - 0.0004) < 1e-9


@pytest.mark.parametrize(
    ("protocol", "host", "vendor"),
    [
        ("openai", "api.openai.com", "openai"),
        ("openai", "acme.openai.azure.com", "azure.ai.openai"),
        ("openai", "acme.services.ai.azure.com", "azure.ai.inference"),
        ("openai", "api.deepseek.com", "deepseek"),
        ("openai", "API.MISTRAL.AI", "mistral_ai"),
        ("openai", "api.x.ai", "x_ai"),
        ("openai", "notx.ai", "openai"),
        ("openai", "vllm.example.com", "openai"),
        ("gemini", "generativelanguage.googleapis.com", "gcp.gemini"),
        ("gemini", "europe-west1-aiplatform.googleapis.com", "gcp.vertex_ai"),
        ("anthropic", "proxy.example.com", "anthropic"),
        ("bedrock", "bedrock-runtime.eu-central-1.amazonaws.com", "aws.bedrock"),
        ("bedrock", "vpce-1.bedrock-runtime.eu-central-1.vpce.amazonaws.com", "aws.bedrock"),
    ],
)
def test_a_vendor_is_named_by_its_address(protocol: str, host: str, vendor: str) -> None:
    assert find_vendor(protocol, host) == vendor
