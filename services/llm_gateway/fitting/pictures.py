"""Shrinks the pictures of a request until any provider accepts them; the log keeps the originals."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections import OrderedDict

from headrace.v1.llm_pb2 import ChatRequest, ContentPart
from services.runtime.tokens.image_size import BYTES_MAX, HEAD_BYTES, BadPicture, fit_picture, is_large

KEPT_MAX = 256
KEPT_BYTES_MAX = 64 * 1024 * 1024
"""Maximum number and size of cached pictures, because each request of a run contains them."""

DATA_URL = "data:image/"


class PictureFitter:
    def __init__(self) -> None:
        self._kept: OrderedDict[bytes, tuple[bytes, str]] = OrderedDict()
        """Result for each picture, by its hash; without content, the reason why it cannot be shown."""
        self._kept_bytes = 0
        self._working = asyncio.Lock()
        """One at a time: a picture takes up to 256 MB."""

    async def fit(self, request: ChatRequest) -> None:
        """Replace each oversized picture with a smaller one, or with a note if it cannot be shown."""
        for message in request.messages:
            for part in message.content:
                if part.WhichOneof("part") == "image" and (data := _find_large(part)):
                    content, kind = await self._fit_picture(data)
                    if not content:
                        part.text = f"[not shown: {kind}]"
                        continue
                    part.image.ClearField("url")
                    part.image.data, part.image.mime_type = content, kind

    async def _fit_picture(self, data: bytes) -> tuple[bytes, str]:
        digest = hashlib.sha256(data).digest()
        async with self._working:
            if (kept := self._kept.get(digest)) is None:
                try:
                    kept = await asyncio.to_thread(fit_picture, data)
                except BadPicture as error:
                    kept = b"", str(error)
                self._kept[digest] = kept
                self._kept_bytes += len(kept[0])
                while (self._kept_bytes > KEPT_BYTES_MAX or len(self._kept) > KEPT_MAX) and len(self._kept) > 1:
                    _, (content, _) = self._kept.popitem(last=False)
                    self._kept_bytes -= len(content)
            self._kept.move_to_end(digest)
        return kept


def _find_large(part: ContentPart) -> bytes:
    """Return the content of an oversized picture; empty for others, and if the size is unknown."""
    image = part.image
    if not image.url:
        data = image.data  # makes a copy each time
        return data if len(data) > BYTES_MAX or is_large(data[:HEAD_BYTES]) else b""
    start, comma, encoded = image.url.partition(";base64,")
    if not comma or not start.startswith(DATA_URL):
        return b""
    try:
        if len(encoded) * 3 // 4 <= BYTES_MAX and not is_large(base64.b64decode(encoded[: HEAD_BYTES // 4 * 4])):
            return b""
        return base64.b64decode(encoded)
    except ValueError:
        return b""  # the provider reports it
