"""Progress of slow starts: memory reads every log when its index is lost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import msgspec

from headrace.cli.supervisor.log_reader import LogReader


class _Indexing(msgspec.Struct, tag_field="event", tag="indexing"):
    """The memory service's log line for each part of the index."""

    service: str
    chats_done: int
    chats: int


_INDEXING = msgspec.json.Decoder(_Indexing)


def describe_progress(logs: LogReader) -> Iterator[str]:
    """Return the progress since the last call, as sentences."""
    for _, line in logs.read_lines():
        with suppress(msgspec.MsgspecError):  # any other line
            progress = _INDEXING.decode(line)
            yield f"{progress.service}: indexing, {progress.chats_done} of {progress.chats} chats"
