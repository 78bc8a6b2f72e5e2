"""The spans of attempts: one each, below the RPC, with what the GenAI conventions ask for and nothing that was said."""

from __future__ import annotations

from opentelemetry.trace import SpanKind
from opentelemetry.trace.status import StatusCode
from prometheus_client import REGISTRY

from tests.support.llm_gateway.gateway import Asking
from tests.support.spans import recording

STREAM_CHAT = "headrace.v1.LlmService/StreamChat"
PRICED = {"name": "sim-2", "price": {"inputPerMTok": 2, "outputPerMTok": 10}}


async def test_each_attempt_is_a_span_and_the_last_one_tells_what_the_answer_cost(asking: Asking) -> None:
    labels = {"provider": "spare", "model": "sim-2", "tenant": "default"}
    before = REGISTRY.get_sample_value("headrace_llm_cost_usd_total", labels) or 0.0
    usage = {"usage": {"prompt_tokens": 100, "completion_tokens": 20}}
    script = [
        {"match": {"model": "sim-2"}, "steps": [{"content": ["the", "secret"]}, usage]},
        {"steps": [{"status": 503}]},
    ]
    with recording() as recorded:
        async with asking(script, spare={"models": [PRICED]}, fallback=["spare/sim-2"]) as gateway:
            heard = await gateway.hear(stage="react")
            await recorded.until(lambda: STREAM_CHAT in recorded.names)
    assert heard.content == ["the", "secret"]
    failed, answered = recorded.only("chat sim-1"), recorded.only("chat sim-2")
    assert failed.attributes is not None
    assert answered.attributes is not None
    assert [recorded.above(span) for span in (failed, answered)] == [[STREAM_CHAT], [STREAM_CHAT]]
    assert (failed.status.status_code, failed.attributes["error.type"]) == (StatusCode.ERROR, "OVERLOADED")
    assert (answered.kind, answered.status.status_code) == (SpanKind.CLIENT, StatusCode.UNSET)
    told = dict(answered.attributes)
    first_chunk_s = told.pop("gen_ai.response.time_to_first_chunk")
    assert isinstance(first_chunk_s, float)
    assert 0 < first_chunk_s < 5
    assert told == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "spare",
        "gen_ai.request.model": "sim-2",
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
