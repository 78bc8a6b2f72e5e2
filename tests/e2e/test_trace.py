"""One trace from the facade to the tool, as a collector gets it from all processes of a running suite."""

import itertools
import json
import os
import signal
from collections.abc import AsyncGenerator
from dataclasses import dataclass

import pytest
import pytest_asyncio

from services.simulator.server import simulator
from tests.support.otlp import Collector, Span, collector
from tests.support.suite import Suite, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

SERVICES = {f"headrace-{name}" for name in ("facade", "orchestrator", "llm-gateway", "memory", "tools")}
QUERY, CHAT, EXECUTE = (
    f"headrace.v1.{name}" for name in ("AgentService/Query", "LlmService/StreamChat", "ToolService/Execute")
)
TOOL = "execute_tool mock_city_weather"
WORDS = "the user's own words"


@dataclass(frozen=True, slots=True)
class Traced:
    suite: Suite
    collector: Collector

    async def trace(self, trace_id: str, *expected: str) -> dict[str, Span]:
        """Wait for spans of these names; return the trace's last span of each name."""
        await self.collector.until(lambda: {span.name for span in self.collector.of(trace_id)} >= {*expected})
        return {span.name: span for span in self.collector.of(trace_id)}

    def logged(self, service: str, event: str) -> list[dict[str, str]]:
        lines = (self.suite.data_dir / "logs" / f"{service}.log").read_text().splitlines()
        return [line for line in map(json.loads, lines) if line["event"] == event]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def traced(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Traced]:
    folder = tmp_path_factory.mktemp("traced")
    async with simulator() as sim, collector() as spans:
        env = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": spans.endpoint,
            "OTEL_BSP_SCHEDULE_DELAY": "50",
            "HEADRACE_LOG_LEVEL": "DEBUG",
        }
        async with running(folder / "config", folder / "data", sim, **env) as suite:
            yield Traced(suite, spans)


async def ask(traced: Traced, trace_id: str, message: str, agent: str, url: str = "") -> str:
    """Ask with the caller's trace id, at `url` or the suite's facade; return the run's id."""
    headers = {"traceparent": f"00-{trace_id}-{'b' * 16}-01"}
    body = {"message": message, "agentKey": agent}
    async with traced.suite.http.post(f"{url or traced.suite.url}/api/query", json=body, headers=headers) as response:
        assert response.status == 200
        frames = (await response.text()).split("\n")
    events = [json.loads(line.removeprefix("data: ")) for line in frames if line.startswith("data: {")]
    return next(event["runId"] for event in events if event["type"] == "run.start")


async def test_one_trace_connects_the_caller_with_the_tool(traced: Traced) -> None:
    trace_id = "1" * 32
    run_id = await ask(traced, trace_id, f"What is the weather in Paris? {WORDS}", "react")
    names = ("POST /api/query", QUERY, "invoke_agent react", CHAT, "chat sim-1", TOOL, EXECUTE)
    spans = await traced.trace(trace_id, *names, "headrace.v1.MemoryService/Append")
    assert {span.service for span in traced.collector.of(trace_id)} == SERVICES
    for path in (
        ("POST /api/query", QUERY, "invoke_agent react", TOOL, EXECUTE),
        ("invoke_agent react", CHAT, "chat sim-1"),
    ):
        for above, below in itertools.pairwise(path):
            assert spans[below].parent_id == spans[above].span_id, below
    assert spans["POST /api/query"].parent_id == "b" * 16
    assert not any(span.failed for span in spans.values())
    assert spans["chat sim-1"].kind == "CLIENT"
    answered = {name: value for name, value in spans["chat sim-1"].attributes.items() if isinstance(value, str)}
    assert (
        answered.items()
        >= {"gen_ai.provider.name": "openai", "headrace.provider": "sim", "gen_ai.request.model": "sim-1"}.items()
    )
    assert spans["chat sim-1"].attributes["gen_ai.usage.output_tokens"] > 0
    assert spans["invoke_agent react"].attributes["headrace.run.state"] == "completed"
    assert spans[EXECUTE].attributes["rpc.response.status_code"] == "OK"
    assert not any(WORDS.encode() in span.said or b"Paris" in span.said for span in traced.collector.of(trace_id))
    (line,) = [line for line in traced.logged("tools", "rpc done") if line["method"] == f"/{EXECUTE}"]
    assert (line["trace_id"], line["span_id"], line["run_id"]) == (trace_id, spans[EXECUTE].span_id, run_id)


async def test_only_the_failing_spans_are_marked_as_failed(traced: Traced) -> None:
    trace_id = "2" * 32
    traced.suite.play({"steps": [{"status": 503}]})
    await ask(traced, trace_id, WORDS, "fail-1")
    spans = await traced.trace(trace_id, "POST /api/query", QUERY, "invoke_agent fail-1", CHAT, "chat fail-1")
    failed = {name: span.attributes.get("error.type") for name, span in spans.items() if span.failed}
    assert failed == {"chat fail-1": "OVERLOADED", CHAT: "OVERLOADED", "invoke_agent fail-1": "OVERLOADED"}


async def test_a_deleted_fact_is_in_no_trace_and_no_file(traced: Traced) -> None:
    suite, trace_id = traced.suite, "5" * 32
    secret, remembered_text = "mellifluous quokka 7261", "cerulean numbat 9914"
    fact = {"text": f"the harbour word is {secret}", "topic": "harbour word"}
    async with suite.http.post(
        f"{suite.url}/api/facts", json=fact, headers={"traceparent": f"00-{trace_id}-{'b' * 16}-01"}
    ) as response:
        fact_id = (await response.json())["data"]["factId"]
    arguments = json.dumps({"fact": f"the tower word is {remembered_text}", "topic": "tower word"})
    suite.play(
        {"match": {"turn": 1}, "steps": [{"toolCall": "remember", "id": "call_1", "arguments": [arguments]}]},
        {"steps": [{"content": "Noted."}]},
    )
    await ask(traced, trace_id, "Do you know the harbour word?", "remembering")
    assert secret in json.dumps(suite.requests())
    assert (await suite.get("/api/facts/search", query="harbour tower"))[1]["data"]["hits"][1:]
    # A refused request leaves no content in traces either.
    missing = "00000000-0000-4000-8000-000000000000"
    for body in ({"factId": missing, "text": secret}, {"factId": fact_id, "text": secret, "topic": secret * 100}):
        assert (await suite.post("/api/fact", body))[0] in (400, 404)
    await suite.post("/api/facts", {"text": secret, "scope": secret})
    for item in (await suite.get("/api/facts"))[1]["data"]["facts"]:
        async with suite.http.delete(f"{suite.url}/api/fact", params={"factId": item["factId"]}) as response:
            assert response.status == 200
    await traced.trace(trace_id, "POST /api/facts", "headrace.v1.MemoryService/Remember", "execute_tool remember")
    await traced.collector.until(lambda: bool(traced.collector.named("headrace.v1.MemoryService/DeleteFact")))
    parts = [part.encode() for part in (*secret.split()[:2], *remembered_text.split()[:2])]
    assert not any(part in span.said for span in traced.collector.spans for part in parts)
    files = [path for path in suite.data_dir.rglob("*") if path.is_file()]
    assert any(path.suffix == ".log" for path in files)
    # Content of a chat stays in the chat's log.
    assert not any(part in path.read_bytes() for path in files for part in parts[:2])


@pytest.mark.nightly
async def test_after_a_takeover_the_new_trace_links_to_the_query(traced: Traced) -> None:
    trace_id = "3" * 32
    suite = traced.suite
    suite.play({"steps": [{"content": "first"}, {"stall": True}]})
    body = {"message": WORDS, "agentKey": "plain"}
    headers = {"traceparent": f"00-{trace_id}-{'b' * 16}-01"}
    async with suite.http.post(f"{suite.url}/api/query", json=body, headers=headers) as response:
        async for line in response.content:
            if b"content.delta" in line:
                break
        suite.play({"steps": [{"content": "again"}]})
        services = suite.services()
        os.kill(services.get("orchestrator") or services["suite"], signal.SIGKILL)
    name = "invoke_agent plain"
    await traced.collector.until(lambda: bool(traced.collector.named(name)))
    (span,) = traced.collector.named(name)
    assert (span.trace_id != trace_id, span.parent_id) == (True, "")
    assert [linked for linked, _ in span.links] == [trace_id]
