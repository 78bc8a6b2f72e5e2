"""An answer's bytes, up to a limit."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx2


class BoundedStream(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream, bytes_max: int) -> None:
        self._stream = stream
        self._bytes_max = bytes_max

    async def __aiter__(self) -> AsyncIterator[bytes]:
        seen_bytes = 0
        async for piece in self._stream:
            seen_bytes += len(piece)
            if seen_bytes > self._bytes_max:
                raise httpx2.ReadError(f"its answer is longer than {self._bytes_max} bytes")
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()
