"""Asks the facades of this suite which services are ready, with nothing that would have to be loaded for it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import msgspec

ANSWER_TIMEOUT_S = 10.0


class _Envelope(msgspec.Struct):
    data: dict[str, bool]


_ENVELOPE = msgspec.json.Decoder(_Envelope)


async def fetch_readiness(entrances: Mapping[str, int | Path]) -> dict[str, bool]:
    """Return by service whether it is ready, with the name of its process before it where there are several.

    A facade that does not answer is not ready; nothing is said of the services behind it.
    """
    answers = await asyncio.gather(*(_ask_facade(entrance) for entrance in entrances.values()))
    return {
        f"{process}: {service}" if process else service: is_ready
        for process, answer in zip(entrances, answers, strict=True)
        for service, is_ready in (answer or {"facade": False}).items()
    }


async def _ask_facade(entrance: int | Path) -> dict[str, bool]:
    """Return nothing while the facade at this port or socket does not answer."""
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            if isinstance(entrance, Path):
                reader, writer = await asyncio.open_unix_connection(entrance)
            else:
                reader, writer = await asyncio.open_connection("127.0.0.1", entrance)
            try:
                writer.write(b"GET /readyz?all= HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n")
                answer = await reader.read()
            finally:
                writer.close()
        return _ENVELOPE.decode(answer.partition(b"\r\n\r\n")[2]).data
    except (OSError, TimeoutError, msgspec.MsgspecError):  # cut while the facade ends, too
        return {}
