"""Asks the facade of this suite which services are ready, with nothing that would have to be loaded for it."""

from __future__ import annotations

import asyncio

import msgspec

ANSWER_TIMEOUT_S = 10.0


class _Envelope(msgspec.Struct):
    data: dict[str, bool]


_ENVELOPE = msgspec.json.Decoder(_Envelope)


async def fetch_readiness(port: int) -> dict[str, bool]:
    """Return by service whether it is ready; nothing while the facade does not answer."""
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(b"GET /readyz?all= HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n")
                answer = await reader.read()
            finally:
                writer.close()
        return _ENVELOPE.decode(answer.partition(b"\r\n\r\n")[2]).data
    except (OSError, TimeoutError, msgspec.MsgspecError):  # cut while the facade ends, too
        return {}
