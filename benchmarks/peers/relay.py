"""The floor of Python: a bare aiohttp relay that passes an SSE stream on, byte for byte, and does nothing else."""

from __future__ import annotations

import argparse
import asyncio
from contextlib import suppress

import aiohttp
import uvloop
from aiohttp import web


async def serve(upstream: str) -> None:
    """Relay every POST to `upstream` until the process is stopped; prints the address it listens on."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def relay(request: web.Request) -> web.StreamResponse:
            async with session.post(upstream, data=await request.read()) as answer:
                response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
                with suppress(ConnectionResetError):  # the reader has left
                    await response.prepare(request)
                    async for chunk in answer.content.iter_any():
                        await response.write(chunk)
                return response

        app = web.Application()
        app.router.add_post("/", relay)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        print(f"http://127.0.0.1:{runner.addresses[0][1]}/", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("upstream")
    uvloop.run(serve(parser.parse_args().upstream))
