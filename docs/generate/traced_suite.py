"""`python -m docs.generate.traced_suite URL`: run the suite in this process, ask one question, and print its steps.

The question needs a tool that needs an approval. A step is a call or message to another service, or a write.
Each is printed as a JSON line: `service`, `step`, and `spine`, the functions that led to it as pairs of file
and name, outermost first. If one task created another, the spine includes both.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import aiohttp
import orjson

from services.facade.responses.frame_writer import FrameWriter
from services.llm_gateway.http.connection import Connection
from services.memory.storage.files.commits import Commits
from services.memory.storage.files.disk import Disk
from services.runtime.calls.client_call import Call
from services.runtime.local.stream import DirectLink, LocalStream
from services.runtime.process.program import Service, run_services, wait_for_stop
from services.suite.__main__ import SERVICES
from services.tools import __main__ as tools
from services.tools.builtin.cities import CITY_DATETIME

ROOT = f"{Path(__file__).parents[2]}/"
SHARED = "services/runtime/"

STEPS: dict[Callable[..., Any], str] = {
    Connection.send_request: "provider",
    Commits.append_lines: "committer",
    Disk.append_each: "disk",
    FrameWriter.send_frame: "frame",
    LocalStream.send: "message",
    CITY_DATETIME.execute: "tool",
}
"""Name of a step by the function that performs it. A call to a service is named after its RPC."""

_BY_CODE: dict[CodeType, str] = {function.__code__: step for function, step in STEPS.items()}

Spine = list[tuple[str, str]]

_spines: dict[asyncio.Task[Any], Spine] = {}
"""Spine of the function that created each task."""


def _read_spine(frame: FrameType | None) -> Spine:
    stack: Spine = []
    while frame is not None:
        if frame.f_code is DirectLink.send.__code__:  # from here on, another service's
            return [*reversed(stack)]
        file = frame.f_code.co_filename.removeprefix(ROOT)
        if file.startswith("services/") and not file.startswith(SHARED):
            stack.append((file, frame.f_code.co_qualname))
        frame = frame.f_back
    try:
        task = asyncio.current_task()
    except RuntimeError:  # a thread without a loop
        task = None
    return [*(_spines.get(task, []) if task else []), *reversed(stack)]


def _make_task(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
    task = asyncio.Task(work, loop=loop, **options)
    _spines[task] = _read_spine(inspect.currentframe())
    return task


def _follow_call(frame: FrameType, event: str, _: object) -> None:
    if event != "call":
        return
    if frame.f_code is Call.__init__.__code__:
        step = frame.f_locals["method"].path.rpartition(".")[2].replace("/", ".")
    elif (step := _BY_CODE.get(frame.f_code, "")) == "":
        return
    if spine := _read_spine(frame):
        _print({"service": spine[-1][0].split("/")[1], "step": step, "spine": spine})


def _print(line: dict[str, Any]) -> None:
    sys.stdout.buffer.write(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))


async def _ask(_: object) -> None:
    """Ask the question, and stop the process when its run has ended."""
    asyncio.get_running_loop().set_task_factory(_make_task)
    sys.setprofile(_follow_call)
    try:
        async with aiohttp.ClientSession(sys.argv[1], raise_for_status=True) as http:
            await _follow_run(http)
    finally:
        sys.setprofile(None)
        os.kill(os.getpid(), signal.SIGTERM)
    await wait_for_stop()


async def _follow_run(http: aiohttp.ClientSession) -> None:
    question = {"message": "What is the time in Paris?", "agentKey": "clock"}
    async with http.post("/api/query", json=question) as response:
        run_id = ""
        async for line in response.content:
            if not line.startswith(b"data: {"):
                continue
            event = orjson.loads(line.removeprefix(b"data: "))
            run_id = event.get("runId", run_id)
            if event["type"] == "approval.ask":
                approval = {"runId": run_id, "approvalId": event["approvalId"], "payload": {"decision": "approve"}}
                async with http.post("/api/submit", json=approval):
                    pass


if __name__ == "__main__":
    threading.setprofile(_follow_call)
    memory, gateway, orchestrator, facade = SERVICES.values()
    asking = Service(memory.config, memory.name, _ask)
    run_services([memory, gateway, Service(tools.Config, "TOOLS", tools.main), orchestrator, facade, asking], "suite")
