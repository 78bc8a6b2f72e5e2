"""Times one run up to its first delta."""

from __future__ import annotations

import time

from headrace.client import Client


async def time_first_delta(client: Client, agent_key: str, chat_id: str = "") -> tuple[float, str]:
    """Ask in a chat, or a new one if `chat_id` is empty, and read to the end; return the time in ms and the
    chat id.
    """
    asked_s, first_s = time.perf_counter(), 0.0
    async with client.ask("go", agent_key=agent_key, chat_id=chat_id) as deltas:
        async for delta in deltas:
            assert not delta.HasField("run_error"), delta
            chat_id = chat_id or delta.run_start.chat_id
            if not first_s and delta.HasField("content_delta"):
                first_s = time.perf_counter()
    return (first_s - asked_s) * 1000, chat_id
