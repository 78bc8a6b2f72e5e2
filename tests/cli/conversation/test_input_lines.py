"""Standard input as a conversation reads it."""

import asyncio
import os

from headrace.cli.conversation.input_lines import InputLines


async def test_input_ends_with_its_terminal() -> None:
    """Reading fails then, and the terminal is ready to be read for ever."""
    terminal, side = os.openpty()
    os.write(terminal, b"first\nrest")
    async with asyncio.timeout(60):
        with InputLines(side) as lines:
            assert await lines.read_line() == "first"
            os.close(terminal)
            while await lines.read_line() is not None:
                pass
    os.close(side)
