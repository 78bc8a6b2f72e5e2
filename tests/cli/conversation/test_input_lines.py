"""Standard input as a conversation reads it."""

import asyncio
import os

from headrace.cli.conversation.input_lines import InputLines


async def test_input_ends_with_its_terminal() -> None:
    terminal, side = os.openpty()
    os.write(terminal, b"first\nrest")
    async with asyncio.timeout(60):
        with InputLines(side) as lines:
            assert await lines.read_line() == "first"
            os.close(terminal)
            while await lines.read_line() is not None:
                pass
    os.close(side)


async def test_input_that_cannot_be_read_is_at_its_end() -> None:
    """EIO, which a terminal also gives to what has outlived its session, and would give for ever."""
    nothing = os.open("/proc/self/mem", os.O_RDONLY)
    async with asyncio.timeout(60):
        with InputLines(nothing) as lines:
            assert await lines.read_line() is None
    os.close(nothing)
