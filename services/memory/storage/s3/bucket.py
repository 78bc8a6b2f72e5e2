"""The few operations of S3 that blobs need."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import structlog

from headrace.errors import HeadraceError
from services.memory.storage.s3.errors import Refused, make_away_error
from services.memory.storage.s3.requests import LIMITS, Limits, Request, Requests, open_requests
from services.memory.storage.s3.settings import parse_place
from services.runtime.ending import CannotServe

if TYPE_CHECKING:
    from services.memory.storage.s3.settings import S3Settings

CHANGED = frozenset({404, 409, 412})
"""Statuses with which a conditional write is refused."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Entry:
    key: str
    """Without the prefix of the bucket's place."""
    changed_at_s: float
    """Unix seconds by the store's clock; 0 for a folder."""


class Bucket:
    """The objects under one prefix. All operations are safe to repeat; each raises Overloaded while the store is
    unavailable."""

    def __init__(self, requests: Requests, prefix: str) -> None:
        self._requests = requests
        self._prefix = prefix

    async def put(self, key: str, body: bytes) -> None:
        """Store an object, replacing any existing one. Raises DiskFull."""
        await self._requests.send(Request("put", "PUT", self._prefix + key, body=body))

    async def replace(self, key: str, body: bytes, etag: str) -> bool:
        """Replace the object with this `etag`; return whether it existed."""
        request = Request("put", "PUT", self._prefix + key, headers={"if-match": etag}, body=body)
        try:
            return await self._requests.ask(request) is not None
        except Refused as refused:
            if refused.status in CHANGED:
                return False
            raise make_away_error(refused.code) from refused

    async def get(self, key: str) -> tuple[bytes, str] | None:
        """Return an object and its etag; None without one."""
        answer = await self._requests.send(Request("get", "GET", self._prefix + key))
        return None if answer is None else (answer.body, answer.headers.get("ETag", ""))

    async def get_head(self, key: str, size_bytes: int) -> bytes | None:
        """Return the first bytes of a non-empty object; None without one."""
        wanted = {"range": f"bytes=0-{size_bytes - 1}"}
        answer = await self._requests.send(Request("get", "GET", self._prefix + key, headers=wanted))
        return None if answer is None else answer.body[:size_bytes]

    async def delete(self, key: str) -> None:
        """Delete an object, whether or not it exists."""
        await self._requests.send(Request("delete", "DELETE", self._prefix + key))

    async def list(self, folder: str) -> AsyncIterator[Entry]:
        """Yield the objects under a folder, which ends with a slash, by key."""
        async for page in self._list_pages(folder, {}):
            for found in page.iterfind("{*}Contents"):
                changed = datetime.fromisoformat(found.findtext("{*}LastModified") or "").timestamp()
                yield Entry((found.findtext("{*}Key") or "").removeprefix(self._prefix), changed)

    async def list_folders(self, folder: str) -> AsyncIterator[str]:
        """Yield the names of the folders in a folder."""
        async for page in self._list_pages(folder, {"delimiter": "/"}):
            for found in page.iterfind("{*}CommonPrefixes/{*}Prefix"):
                yield (found.text or "").removeprefix(self._prefix + folder).rstrip("/")

    async def check(self, url: str) -> None:
        """Check that the bucket is usable. Raises CannotServe if it never will be; an unavailable one may come back."""
        query = {"list-type": "2", "max-keys": "1", "prefix": self._prefix}
        try:
            await self._requests.ask(Request("list", "GET", query=query))
        except Refused as refused:
            raise CannotServe(f"HEADRACE_MEMORY_BLOBS: {url}: cannot be used: {refused.code}") from refused
        except HeadraceError as error:
            log.warning("started without the bucket of the blobs", url=url, problem=error.message)

    async def _list_pages(self, folder: str, options: dict[str, str]) -> AsyncIterator[ElementTree.Element]:
        query = {"list-type": "2", "prefix": self._prefix + folder, **options}
        while True:
            answer = await self._requests.send(Request("list", "GET", query=query))
            try:
                page = ElementTree.fromstring(answer.body if answer else b"")
            except ElementTree.ParseError as error:
                raise make_away_error("no list of objects") from error
            yield page
            token = page.findtext("{*}NextContinuationToken")
            if not token:
                return
            query["continuation-token"] = token


@asynccontextmanager
async def open_bucket(url: str, settings: S3Settings, limits: Limits = LIMITS) -> AsyncGenerator[Bucket]:
    """Open the bucket at `url`. Raises CannotServe if it refuses."""
    place = parse_place(url)
    async with open_requests(place, settings, limits) as requests:
        bucket = Bucket(requests, place.prefix)
        await bucket.check(url)
        yield bucket
