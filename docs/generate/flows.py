"""Lists the files through which a question, a delta, a tool call and an approval pass, traced from a run of the
suite.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from headrace.cli.supervisor.suite_plan import SuitePlan
from services.simulator.server import simulator

ROOT = Path(__file__).parents[2]

Spine = Sequence[tuple[str, str]]
"""Pairs of file and function, outermost first."""

TRACE_S = 60.0
"""Timeout of a traced run, which takes four seconds on an idle machine."""

PACE_MS = 5.0
"""Pause before each delta, so that deltas are not merged."""

AGENT = {
    "key": "clock",
    "name": "Clock",
    "mode": "REACT",
    "modelConfig": {"providerKey": "simulator", "model": "sim-1"},
    "react": {"systemPrompt": "Answer."},
    "toolConfig": {"backends": ["city_datetime"]},
}
TOOL = {"tools": [{"type": "function", "name": "city_datetime", "approval": "ask"}]}


@dataclass(frozen=True, slots=True)
class Step:
    service: str
    step: str
    meaning: str
    through: str = ""
    """Function on the way to the step, needed if other paths lead to such a step, too."""


FLOWS: dict[str, tuple[tuple[str, str] | None, Sequence[Step]]] = {
    "question": (
        None,
        (
            Step("facade", "AgentService.Query", "The facade receives `POST /api/query` and calls the orchestrator"),
            Step("orchestrator", "MemoryService.BeginRun", "The orchestrator starts a run and stores its question"),
            Step("memory", "committer", "Memory appends the lines to the chat and hands them to its committer"),
            Step("memory", "disk", "The committer writes them, and makes them durable, in a thread"),
            Step("orchestrator", "LlmService.StreamChat", "The run asks the model"),
            Step("llm_gateway", "provider", "The gateway sends the provider's form of the request"),
        ),
    ),
    "delta": (
        ("facade", "AgentService.Submit"),
        (
            Step(
                "llm_gateway",
                "message",
                "The gateway reads a frame of the provider and sends an LlmDelta",
                "AnswerReader._send_content",
            ),
            Step("orchestrator", "message", "The run sends an AgentDelta to each of its readers", "Feed.write"),
            Step("facade", "frame", "The facade writes a frame of the SSE stream"),
        ),
    ),
    "tool-call": (
        ("facade", "AgentService.Submit"),
        (
            Step("orchestrator", "ToolService.Execute", "The run has the tool called"),
            Step("tools", "tool", "The tools service runs the tool, and sends its output and result as they come"),
            Step("orchestrator", "MemoryService.Append", "The run stores the result"),
        ),
    ),
    "approval": (
        ("llm_gateway", "provider"),
        (
            Step("orchestrator", "MemoryService.Append", "The run stores the model's call"),
            Step("orchestrator", "MemoryService.Append", "It stores a gate, and waits for an answer"),
            Step("facade", "AgentService.Submit", "The facade receives `POST /api/submit` and calls the orchestrator"),
            Step("orchestrator", "MemoryService.Append", "The orchestrator stores the answer"),
            Step("orchestrator", "ToolService.Execute", "The run continues, and has the tool called"),
        ),
    ),
}
"""By flow: the step (service and name) after which it starts, and its own steps. A step in which the caller
reads is unsuitable as a start, because a busy machine may delay it.
"""


def describe_flow(name: str) -> str:
    """Return the steps of a flow as a list, each with its files in order; files already shown on the page are
    omitted.
    """
    shown = [spine for flow in itertools.takewhile(lambda flow: flow != name, FLOWS) for _, spine in trace_flow(flow)]
    lines: list[str] = []
    for number, (step, spine) in enumerate(trace_flow(name), 1):
        common = max((_count_common(spine, other) for other in shown), default=0)
        lines.append(f"{number}. {step.meaning}:")
        if common:
            file, function = spine[common - 1]
            lines.append(f"    - as above, down to `{_shorten(function)}` of `{file}`")
        lines += _list_files(spine[common:])
        shown.append(spine)
    return "\n".join(lines)


def _count_common(one: Spine, other: Spine) -> int:
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def trace_flow(name: str) -> list[tuple[Step, Spine]]:
    """Return the steps of a flow with their spines; raise LookupError for a step that the run did not take."""
    after, steps = FLOWS[name]
    lines = iter(_trace_run())
    if after is not None:
        _find_spine(lines, Step(*after, ""))
    return [(step, _find_spine(lines, step)) for step in steps]


def _find_spine(lines: Iterator[dict[str, Any]], step: Step) -> Spine:
    for line in lines:
        is_step = (line["service"], line["step"]) == (step.service, step.step)
        if is_step and (not step.through or any(name == step.through for _, name in line["spine"])):
            return [(file, name) for file, name in line["spine"]]
    raise LookupError(f"the traced run has no step {step.step!r} of {step.service} there")


def _list_files(spine: Spine) -> list[str]:
    functions: dict[str, dict[str, None]] = {}
    for file, function in spine:
        functions.setdefault(file, {})[_shorten(function)] = None
    return [f"    - `{file}`: {', '.join(f'`{name}`' for name in names)}" for file, names in functions.items()]


def _shorten(function: str) -> str:
    return function.replace(".<locals>", "")


@cache
def _trace_run() -> list[dict[str, Any]]:
    return asyncio.run(_run_suite())


async def _run_suite() -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory(prefix="headrace-flows-") as name:
        folder = Path(name)
        async with simulator((), port=0, pace_ms=PACE_MS) as provider:
            _write_definitions(folder / "config", provider.base_url)
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = free.getsockname()[1]
            plan = SuitePlan(
                config_dir=folder / "config",
                data_dir=folder / "data",
                run_dir=folder,
                http_port=port,
                grpc_port=0,
                memory_port=0,
                simulator_port=None,
                is_one_process=True,
                replicas=1,
            )
            environment: dict[str, str] = {}
            for process in plan.build_processes():
                environment |= process.environment
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "docs.generate.traced_suite", f"http://127.0.0.1:{port}"),
                env=environment | {"PYTHONPATH": str(ROOT)},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            try:
                async with asyncio.timeout(TRACE_S):
                    lines, log = await process.communicate()
            finally:
                if process.returncode is None:
                    process.kill()
    if process.returncode:
        raise RuntimeError(f"the traced suite ended with {process.returncode}: {log.decode()[-2000:]}")
    return [json.loads(line) for line in lines.splitlines()]


def _write_definitions(folder: Path, provider_url: str) -> None:
    models = [{"name": "sim-1", "contextWindow": 100_000, "maxOutput": 8_000, "capabilities": ["tools"]}]
    provider = {"key": "simulator", "protocol": "openai", "baseUrl": provider_url, "models": models}
    for path, definition in (
        ("agents/clock.json", AGENT),
        ("tools/city_datetime.backend", TOOL),
        ("providers.json", {"providers": [provider]}),
    ):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(json.dumps(definition))
