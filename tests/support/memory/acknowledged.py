"""Writers as processes of their own, and the appends they had acknowledged, to be compared with the log."""

import asyncio
import os
import random
import signal
import sys
from dataclasses import dataclass, field

from services.memory.log import recovery


@dataclass(slots=True)
class Acknowledged:
    """The appends that a writer got a reply to."""

    spans: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict[tuple[str, str], tuple[int, int]])
    """First and last number, by chat and request id."""

    def note(self, line: bytes) -> bool:
        """Record a printed line, and return whether it reports an append."""
        words = line.decode().split()
        if words[:1] != ["acknowledged"] or len(words) != 5:
            return False
        self.spans[words[1], words[2]] = int(words[3]), int(words[4])
        return True

    def check(self, chat_id: str, log: bytes) -> int:
        """Compare the chat's log with the appends; return how many bytes of the log are whole."""
        own = {request_id: span for (chat, request_id), span in self.spans.items() if chat == chat_id}
        reading = recovery.read_log(log, chat_id)
        assert not reading.is_damaged
        lines = reading.lines
        assert [line.n for line in lines] == list(range(1, len(lines) + 1))
        firsts = {line.uuid: (line.n, line.n + line.lines - 1) for line in lines}
        assert len(firsts) == len(lines), "no append is there twice"
        for request_id, span in own.items():
            assert firsts[request_id] == span
        # A first append that failed, and was never acknowledged, leaves a log without a line.
        assert len(lines) >= max((last for _, last in own.values()), default=0)
        return reading.whole_bytes


async def start(place: str, turn: str, chat_ids: list[str], *before: str) -> asyncio.subprocess.Process:
    """Start a writer over the folder or the database at `place`."""
    return await asyncio.create_subprocess_exec(
        *before, sys.executable, "-m", "tests.support.memory.crashing", place, turn, *chat_ids,
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip


async def note_first_lines(writer: asyncio.subprocess.Process, acknowledged: Acknowledged) -> None:
    """Record what is acknowledged to the writer, up to a random moment of its work."""
    assert writer.stdout is not None
    for _ in range(random.randrange(1, 60)):
        while not acknowledged.note(line := await writer.stdout.readline()):
            assert line, "the writer must not end"


async def note_remaining_lines(writer: asyncio.subprocess.Process, acknowledged: Acknowledged) -> None:
    """Record what is acknowledged to the writer, which is still running, until its end."""
    printed, _ = await writer.communicate()
    assert writer.returncode == 0
    for line in printed.splitlines():
        acknowledged.note(line)


async def kill_at_random(writer: asyncio.subprocess.Process, acknowledged: Acknowledged) -> None:
    """Kill the writer at a random moment, and record everything that was acknowledged to it before."""
    assert writer.stdout is not None
    async with asyncio.timeout(600):
        await note_first_lines(writer, acknowledged)
        os.kill(writer.pid, signal.SIGKILL)
        for line in (await writer.stdout.read()).splitlines():
            acknowledged.note(line)  # a caller who learned of it before the crash may rely on it
        await writer.wait()
