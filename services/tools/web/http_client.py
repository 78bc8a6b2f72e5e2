"""aiohttp, which only a fetch or a search needs: a tenth of a second of the start, and 8 MB."""

from __future__ import annotations

import asyncio
import importlib


async def load_http_client() -> None:
    """Import aiohttp, off the loop; what imports it afterwards does not wait."""
    await asyncio.to_thread(importlib.import_module, "aiohttp")
