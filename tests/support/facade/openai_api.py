"""The official client with a facade whose orchestrator is scripted, and runs that use the caller's functions."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from openai import AsyncOpenAI

from headrace.v1 import agent_pb2
from tests.support.facade.fronts import DEFAULTS, Timing
from tests.support.facade.scripted import BLOCK, CHAT, RUN, Script, Step, Suite, complete, delta, opening, suite

THOUGHT = f"{RUN}_r_1"
RUN_HEX = RUN.replace("-", "")
ANSWERED = [{"role": "user", "content": "How warm?"}]
FUNCTION = {"name": "thermometer", "description": "Reads it.", "parameters": {"type": "object", "properties": {}}}


@asynccontextmanager
async def client(folder: Path, script: Script, timing: Timing = DEFAULTS) -> AsyncGenerator[tuple[AsyncOpenAI, Suite]]:
    """A client of a running facade."""
    async with (
        suite(folder, script, timing=timing) as facade,
        AsyncOpenAI(base_url=f"{facade.url}/v1", api_key="none", max_retries=0) as openai,
    ):
        yield openai, facade


def make_run(state: str) -> agent_pb2.Run:
    """Return the run as GetRun does."""
    return agent_pb2.Run(run_id=RUN, chat_id=CHAT, agent_key="helper", state=state, created_at=1_700_000_000_000)


def make_runs(count: int) -> list[agent_pb2.Run]:
    """Return runs of a chat, each a second after the previous one; the n-th id ends with n."""
    runs: list[agent_pb2.Run] = []
    for number in range(count):
        at = 1_700_000_000_000 + number * 1000
        run_id = f"{RUN[:-6]}{number:06}"
        run = agent_pb2.Run(run_id=run_id, chat_id=CHAT, agent_key="helper", state="completed")
        run.created_at = run.updated_at = at
        runs.append(run)
    return runs


def thinking() -> list[Step]:
    """Return a run that thinks, calls an internal tool, and answers in two blocks."""
    return [
        *opening(),
        *thought(4),
        *block(7, BLOCK, "I ", "look."),
        *own_call(11),
        *block(15, f"{RUN}_c_2", "20 °C"),
        complete(18),
    ]


def thought(seq: int) -> list[Step]:
    """Return a block of reasoning: three events."""
    return [
        delta(seq, reasoning_start=agent_pb2.ReasoningStart(reasoning_id=THOUGHT, run_id=RUN)),
        delta(seq + 1, reasoning_delta=agent_pb2.ReasoningDelta(reasoning_id=THOUGHT, delta="Hm")),
        delta(seq + 2, reasoning_end=agent_pb2.ReasoningEnd(reasoning_id=THOUGHT)),
    ]


def block(seq: int, content_id: str, *pieces: str) -> list[Step]:
    """Return a block of content: its start, an event for each piece, its end."""
    deltas = [agent_pb2.ContentDelta(content_id=content_id, delta=piece) for piece in pieces]
    return [
        delta(seq, content_start=agent_pb2.ContentStart(content_id=content_id, run_id=RUN)),
        *(delta(at, content_delta=piece) for at, piece in enumerate(deltas, start=seq + 1)),
        delta(seq + 1 + len(deltas), content_end=agent_pb2.ContentEnd(content_id=content_id)),
    ]


def own_call(seq: int) -> list[Step]:
    """Return a call of the agent's own tool: four events."""
    return [
        delta(seq, tool_start=agent_pb2.ToolStart(tool_id="x", run_id=RUN, tool_name="weather", tool_type="backend")),
        delta(seq + 1, tool_args=agent_pb2.ToolArgs(tool_id="x", delta="{}", chunk_index=0)),
        delta(seq + 2, tool_end=agent_pb2.ToolEnd(tool_id="x", tool_params="{}")),
        delta(seq + 3, tool_result=agent_pb2.ToolResult(tool_id="x", result="20", ok=True)),
    ]


OF_THE_CALLER: dict[str, Any] = {"tool_type": "frontend", "tool_api": "client", "tool_name": "thermometer"}


def client_call(seq: int, tool_id: str) -> list[Step]:
    """Return a call of the caller's function: three events, without its result."""
    return [
        delta(seq, tool_start=agent_pb2.ToolStart(tool_id=tool_id, run_id=RUN, **OF_THE_CALLER)),
        delta(seq + 1, tool_args=agent_pb2.ToolArgs(tool_id=tool_id, delta='{"room":', chunk_index=0)),
        delta(seq + 2, tool_end=agent_pb2.ToolEnd(tool_id=tool_id, tool_params='{"room":1}')),
    ]


def past_call(seq: int, tool_id: str) -> Step:
    """Return the snapshot of a call of the caller's function, with the seq of its end."""
    return delta(seq, tool_snapshot=agent_pb2.ToolSnapshot(tool_id=tool_id, tool_params='{"room":1}', **OF_THE_CALLER))


def result(seq: int, tool_id: str) -> Step:
    """The result of a call."""
    return delta(seq, tool_result=agent_pb2.ToolResult(tool_id=tool_id, result="20", ok=True))


def reset(seq: int, from_seq: int, **where: str) -> Step:
    """Return the reset of an attempt: the model's answer broke off and is retried."""
    lost = agent_pb2.AttemptReset(run_id=RUN, from_seq=from_seq, reason="PROVIDER_UNAVAILABLE")
    return delta(seq, attempt_reset=lost, **where)


def make_retried_run() -> list[Step]:
    """Return a run whose answer breaks off after a thought, half a sentence, a call of the caller's function and half a
    call; the retry is complete, and the run waits.
    """
    return [
        *opening(),
        *thought(4),
        *block(7, BLOCK, "I lo")[:-1],
        *client_call(9, "t_0000000a"),
        *client_call(12, "t_0000000b")[:2],
        reset(14, 3),
        *block(15, f"{RUN}_c_2", "I look."),
        *client_call(18, "t_0000000c"),
        asyncio.Event(),
    ]


def answer_from(seq: int, *pieces: str) -> list[Step]:
    """Return the end of a run that answers with `pieces`."""
    steps = block(seq, BLOCK, *pieces)
    return [*steps, complete(seq + len(steps))]
