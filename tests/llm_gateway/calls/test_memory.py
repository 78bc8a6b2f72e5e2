"""Memory of a gateway process under streams that could exhaust it."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import HeadraceError
from headrace.streams import reading
from headrace.v1 import llm_pb2
from services.llm_gateway.protocols.openai.reader import FRAME_BYTES_MAX
from services.simulator.server import simulator
from tests.support.llm_gateway.gateway import provider_entry, text_message
from tests.support.llm_gateway.process import GatewayProcess, gateway_process

STREAMS = 100
"""One of them left behind would be more than GROWTH_BYTES_MAX."""

AT_ONCE = 5
GROWTH_BYTES_MAX = 15_000_000
OVERSIZED = "x" * (FRAME_BYTES_MAX + 1)
SCRIPT: list[dict[str, Any]] = [
    {"match": {"text": "before"}, "steps": [{"raw": OVERSIZED}]},
    {"match": {"text": "after"}, "steps": [{"content": "a"}, {"raw": OVERSIZED}]},
    {"steps": [{"content": "fine"}]},
]


async def reason(gateway: GatewayProcess, model: str, text: str) -> str:
    """Run a call to its end and return the reason of its error; empty without one."""
    request = llm_pb2.ChatRequest(provider_key="sim", model=model, messages=[text_message("user", text)])
    try:
        async with reading(gateway.llm.StreamChat(request, timeout=120)) as replies:
            async for _ in replies:
                pass
    except HeadraceError as error:
        return error.reason
    return ""


async def send_oversized(gateway: GatewayProcess, streams: int) -> None:
    """Run `streams` streams with an oversized frame, among others that keep the breakers closed."""

    async def work(model: str) -> None:
        for number in range(streams // AT_ONCE):
            assert await reason(gateway, model, ("before", "after")[number % 2]) == "BAD_FRAME"
            assert await reason(gateway, model, "fine") == ""
            assert await reason(gateway, model, "fine") == ""

    async with asyncio.TaskGroup() as group:
        for number in range(AT_ONCE):
            group.create_task(work(f"sim-{number}"))


@pytest.mark.nightly
async def test_streams_with_oversized_frames_leave_no_memory_behind(tmp_path: Path) -> None:
    async with asyncio.timeout(900), simulator(SCRIPT) as sim:
        entry = provider_entry(sim.base_url, models=[{"name": f"sim-{number}"} for number in range(AT_ONCE)])
        async with gateway_process(tmp_path, entry) as gateway:
            await send_oversized(gateway, 20)  # buffers, pools and caches of a process at work
            warm_bytes = gateway.rss_bytes
            await send_oversized(gateway, STREAMS)
            grown_bytes = gateway.rss_bytes - warm_bytes
    assert grown_bytes < GROWTH_BYTES_MAX
