"""Shows what fills the window of a chat's next request, for `headrace context` and `/context`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from google.protobuf import json_format

from headrace.cli.facade.client import FacadeClient
from headrace.cli.run_view.compaction_view import describe_compaction
from headrace.cli.run_view.costs import describe_usage
from headrace.cli.run_view.printing import print_text
from headrace.v1 import agent_pb2

BAR_CHARS = 30
"""Width of a bar that fills the whole window."""

GONE = ("summarised", "left_out")


async def print_context(url: str, chat_id: str, agent_key: str | None = None, run_id: str | None = None) -> None:
    wanted = {"chatId": chat_id, "agentKey": agent_key, "runId": run_id}
    async with FacadeClient(url) as facade:
        data = await facade.get("/api/context", **{name: value for name, value in wanted.items() if value})
    stated = msgspec.json.decode(data, type=dict[str, Any])
    window = json_format.ParseDict(stated, agent_pb2.GetContextResponse(), ignore_unknown_fields=True)
    for line in _describe_window(window):
        print_text(line)


def _describe_window(window: agent_pb2.GetContextResponse) -> Iterator[str]:
    room = window.context_window_tokens
    share = f" of {room:,} ({window.tokens / room:.0%})" if room else ""
    yield f"{window.agent_key}, {window.model}: {window.tokens:,} tokens{share}"
    for part in window.parts:
        if part.state not in GONE:
            bar = "█" * max(1, round(BAR_CHARS * part.tokens / (room or window.tokens or 1)))
            why = f"  {part.why}" if part.why else ""
            yield f"  {part.kind:9} {part.tokens:>9,}  {bar} {part.count or ''}{why}"
    for part in window.parts:
        if part.state in GONE:
            lines = f"lines {part.first_n}-{part.last_n}" if part.first_n else ""
            state = part.state.replace("_", " ")
            yield f"  {state}: {part.count} {part.kind}, {part.tokens:,} tokens, {lines}: {part.why}"
    if window.HasField("last_cached_ratio"):
        yield f"  {window.last_cached_ratio:.0%} of the last call came from the provider's cache"
    if window.compaction_due:
        yield "  a compaction comes before the next turn"
    if window.HasField("compaction"):
        yield from describe_compaction(window.compaction)
    if window.HasField("chat_usage"):
        yield f"spent in this chat: {describe_usage(window.chat_usage)}"
    if window.HasField("between_runs_usage"):
        yield f"  of that by summaries between runs: {describe_usage(window.between_runs_usage)}"
