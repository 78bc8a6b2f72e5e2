"""How far services are that take long to start: memory, while it reads every log for an index that is lost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import msgspec

from headrace.cli.log_lines import LogLines


class _Indexing(msgspec.Struct, tag_field="event", tag="indexing"):
    """As services/memory/storage/files/index_recovery.py logs it."""

    service: str
    chats_done: int
    chats: int


_INDEXING = msgspec.json.Decoder(_Indexing)


def progress(lines: LogLines) -> Iterator[str]:
    """What is new of it, in words."""
    for _, line in lines.new():
        with suppress(msgspec.MsgspecError):  # any other line
            said = _INDEXING.decode(line)
            yield f"{said.service}: indexing, {said.chats_done} of {said.chats} chats"
