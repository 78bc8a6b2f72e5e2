"""Reading a conversation's lines from standard input."""

import asyncio
import os

from headrace.cli.conversation.input_lines import InputLines


async def test_input_ends_when_its_terminal_closes() -> None:
    terminal, side = os.openpty()
    os.write(terminal, b"first\nrest")
    async with asyncio.timeout(60):
        with InputLines(side) as lines:
            assert await lines.read_line() == "first"
            os.close(terminal)
            while await lines.read_line() is not None:
                pass
    os.close(side)


async def test_input_that_cannot_be_read_ends() -> None:
    """EIO, which a terminal also gives forever to a process that has outlived its session."""
    nothing = os.open("/proc/self/mem", os.O_RDONLY)
    async with asyncio.timeout(60):
        with InputLines(nothing) as lines:
            assert await lines.read_line() is None
    os.close(nothing)
