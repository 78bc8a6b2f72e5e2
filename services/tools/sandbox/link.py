"""Waiting for a word of the supervisor on its link, without a thread."""

from __future__ import annotations

import asyncio
import socket


async def readable(link: socket.socket, timeout_s: float) -> bool:
    """Whether there is something to read within the time, which the link's end is too."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(link, ready.set)
    try:
        async with asyncio.timeout(timeout_s):
            await ready.wait()
    except TimeoutError:
        return False
    finally:
        loop.remove_reader(link)
    return True
