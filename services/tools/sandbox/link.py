from __future__ import annotations

import asyncio
import socket


async def wait_readable(link: socket.socket, timeout_s: float) -> bool:
    """Waits until the link can be read; returns False at the timeout."""
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
