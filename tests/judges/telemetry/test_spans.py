"""Phoenix's own reader of OpenTelemetry's GenAI conventions finds models, tokens, messages and tools in our spans."""

import asyncio
import json
from asyncio.subprocess import PIPE
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from services.simulator.server import simulator
from tests.judges.environments import NODE, find_npm_environment
from tests.support.otlp import Span, collector
from tests.support.programs import run_to_end
from tests.support.suite import running

HERE = Path(__file__).parent
QUESTION = "What is the weather in Paris? The token=abcdefghijkl is mine."


async def read_as_phoenix(spans: Sequence[Span]) -> list[dict[str, Any]]:
    """Return OpenInference's attributes of each span."""
    packages = await asyncio.to_thread(find_npm_environment, "telemetry", HERE / "package.json")
    given = json.dumps([span.attributes for span in spans]).encode()
    _, out, _ = await run_to_end(NODE, HERE / "convert.mjs", packages, given=given, stdin=PIPE)
    return json.loads(out)


async def trace_a_question(tmp_path: Path, capture: str) -> dict[str, dict[str, Any]]:
    """Ask about the weather; return Phoenix's attributes of the last span of each name."""
    env = {"OTEL_BSP_SCHEDULE_DELAY": "50", "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": capture}
    async with simulator() as sim, collector() as traces:
        env["OTEL_EXPORTER_OTLP_ENDPOINT"] = traces.endpoint
        async with running(tmp_path / "config", tmp_path / "data", sim, **env) as suite:
            await suite.post("/api/query", {"message": QUESTION, "agentKey": "react", "stream": False})
            await traces.until(
                lambda: len(traces.named("chat sim-1")) == 2 and bool(traces.named("invoke_agent react"))
            )
            await traces.until(lambda: bool(traces.named("execute_tool mock_city_weather")))
    exported = b"".join(span.said for span in traces.spans)
    assert (b"Paris" in exported) == bool(capture)
    assert b"abcdefghijkl" not in exported
    read = await read_as_phoenix(traces.spans)
    return {span.name: found for span, found in zip(traces.spans, read, strict=True)}


@pytest.mark.parametrize("capture", ["true", "SPAN_ONLY"])
async def test_generations_are_read_with_their_messages(tmp_path: Path, capture: str) -> None:
    read = await trace_a_question(tmp_path, capture)
    chat, tool, run = (read[name] for name in ("chat sim-1", "execute_tool mock_city_weather", "invoke_agent react"))
    assert (
        chat.items() >= {"openinference.span.kind": "LLM", "llm.provider": "openai", "llm.model_name": "sim-1"}.items()
    )
    assert chat["llm.token_count.prompt"] > 0
    assert chat["llm.token_count.completion"] > 0
    assert chat["llm.input_messages.1.message.role"] == "user"
    assert "Paris" in chat["llm.input_messages.1.message.contents.0.message_content.text"]
    assert json.loads(chat["llm.input_messages.2.message.tool_calls.0.tool_call.function.arguments"])["city"] == "Paris"
    assert "Paris" in chat["llm.input_messages.3.message.content"]
    assert chat["llm.output_messages.0.message.contents.1.message_content.text"]
    assert "mock_city_weather" in chat["llm.tools.0.tool.json_schema"]
    assert (tool["openinference.span.kind"], tool["tool.name"]) == ("TOOL", "mock_city_weather")
    assert json.loads(tool["input.value"])["city"] == "Paris"
    assert json.loads(tool["output.value"])["city"] == "Paris"
    assert run["openinference.span.kind"] == "AGENT"
    assert "Paris" in run["input.value"]
    assert "Paris" in run["output.value"]


async def test_no_message_is_exported_without_consent(tmp_path: Path) -> None:
    read = await trace_a_question(tmp_path, "")
    assert read["chat sim-1"]["llm.model_name"] == "sim-1"
