"""Shrinks the pictures of a request until any provider accepts them; the log keeps the originals."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections import OrderedDict
from collections.abc import Collection

from headrace.v1.llm_pb2 import ChatRequest, ImagePart
from services.runtime.tokens.image_size import BYTES_MAX, HEAD_BYTES, MIME_TYPES, BadPicture, fit_picture, is_large

KEPT_MAX = 256
KEPT_BYTES_MAX = 64 * 1024 * 1024
"""Maximum number and size of cached pictures, because each request of a run contains them."""


class PictureFitter:
    def __init__(self) -> None:
        self._kept: OrderedDict[bytes, tuple[bytes, str]] = OrderedDict()
        """Result for each picture, by its hash; without content, the reason why it cannot be shown."""
        self._kept_bytes = 0
        self._working = asyncio.Lock()
        """One at a time: a picture takes up to 256 MB."""

    async def fit(self, request: ChatRequest, refused: Collection[str] = ()) -> None:
        """Give each picture the type of its bytes. Convert oversized pictures and those of `refused` types; a note
        replaces a picture that cannot be shown."""
        for message in request.messages:
            for part in message.content:
                if part.WhichOneof("part") == "image" and (data := _check_picture(part.image, refused)):
                    content, kind = await self._fit_picture(data, refused)
                    if not content:
                        part.text = f"[not shown: {kind}]"
                        continue
                    part.image.ClearField("url")
                    part.image.data, part.image.mime_type = content, kind

    async def _fit_picture(self, data: bytes, refused: Collection[str]) -> tuple[bytes, str]:
        hashed = hashlib.sha256("".join(sorted(refused)).encode())
        hashed.update(data)
        digest = hashed.digest()
        async with self._working:
            if (kept := self._kept.get(digest)) is None:
                try:
                    kept = await asyncio.to_thread(fit_picture, data, refused)
                except BadPicture as error:
                    kept = b"", str(error)
                self._kept[digest] = kept
                self._kept_bytes += len(kept[0])
                while (self._kept_bytes > KEPT_BYTES_MAX or len(self._kept) > KEPT_MAX) and len(self._kept) > 1:
                    _, (content, _) = self._kept.popitem(last=False)
                    self._kept_bytes -= len(content)
            self._kept.move_to_end(digest)
        return kept


def _check_picture(image: ImagePart, refused: Collection[str]) -> bytes:
    """Correct the type; return the content of an oversized or refused picture, empty for others, and if the size is
    unknown."""
    if not image.url:
        data = image.data  # makes a copy each time
        if kind := _find_type(data):
            image.mime_type = kind
        return data if len(data) > BYTES_MAX or kind in refused or is_large(data[:HEAD_BYTES]) else b""
    start, comma, encoded = image.url.partition(";base64,")
    if not comma or not start.startswith("data:"):
        return b""
    try:
        head = base64.b64decode(encoded[: HEAD_BYTES // 4 * 4])
        if (kind := _find_type(head)) and start != f"data:{kind}":
            image.url = f"data:{kind};base64,{encoded}"
        if len(encoded) * 3 // 4 <= BYTES_MAX and kind not in refused and not is_large(head):
            return b""
        return base64.b64decode(encoded)
    except ValueError:
        return b""  # the provider reports it


def _find_type(data: bytes) -> str:
    """Return the type that the first bytes show, even if they do not show the size."""
    return next((kind for start, kind in MIME_TYPES.items() if data.startswith(start)), "")
