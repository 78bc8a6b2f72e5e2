"""A receiver of webhooks: a real HTTP server on port 0 that answers as a test says and stores what it receives."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web


@dataclass(frozen=True)
class Post:
    headers: dict[str, str]
    body: bytes
    target: str = ""
    """Path and query as received."""

    @property
    def event(self) -> dict[str, Any]:
        return json.loads(self.body)

    @property
    def event_id(self) -> str:
        return self.headers["webhook-id"]


@dataclass
class Receiver:
    port: int = 0
    posts: list[Post] = field(default_factory=list[Post])
    answer: Callable[[Post], Any] = lambda post: 204
    """Returns a status, or an awaitable of one, or a response."""
    news: asyncio.Condition = field(default_factory=asyncio.Condition)

    @property
    def url(self) -> str:
        return f"http://hooks.test:{self.port}/in"

    @property
    def types(self) -> list[str]:
        return [post.event["type"] for post in self.posts]

    async def wait_for(self, count: int) -> list[Post]:
        """Wait until there are `count` posts."""
        async with asyncio.timeout(120), self.news:
            await self.news.wait_for(lambda: len(self.posts) >= count)
        return self.posts

    async def take(self, request: web.Request) -> web.StreamResponse:
        post = Post(
            {name.lower(): value for name, value in request.headers.items()}, await request.read(), request.raw_path
        )
        async with self.news:
            self.posts.append(post)
            self.news.notify_all()
        found = self.answer(post)
        if asyncio.iscoroutine(found):
            found = await found
        return web.Response(status=found) if isinstance(found, int) else found


@asynccontextmanager
async def receiving(**server: Any) -> AsyncGenerator[Receiver]:
    receiver = Receiver()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", receiver.take)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0, **server)
        await site.start()
        receiver.port = runner.addresses[0][1]
        yield receiver
    finally:
        await runner.cleanup()


async def resolve_here(name: str) -> list[str]:
    return ["127.0.0.1"]
