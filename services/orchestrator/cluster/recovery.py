"""Waits for memory."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog

from headrace.errors import ProviderUnavailable

RETRY_DELAY_S = 0.2

T = TypeVar("T")

log = structlog.get_logger()


async def patiently(ask: Callable[[], Awaitable[T]]) -> T:
    while True:
        try:
            return await ask()
        except ProviderUnavailable:
            log.debug("waiting for memory")
            await asyncio.sleep(RETRY_DELAY_S)
