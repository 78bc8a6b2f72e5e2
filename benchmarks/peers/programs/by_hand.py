"""A hand-written server: FastAPI, httpx, a loop over the model's turns, one tool in the process, no log.

`python by_hand.py UPSTREAM`, in its own environment, prints its URL. `/relay` forwards the provider's stream,
`/agent` runs the loop.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse
from serving import run_app

TURNS_MAX = 10
TOOLS = [{"type": "function", "function": {"name": "city_datetime", "parameters": {"type": "object"}}}]


def make_app(upstream: str) -> FastAPI:
    @asynccontextmanager
    async def opening_client(app: FastAPI) -> AsyncGenerator[None]:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=200)
        async with httpx.AsyncClient(timeout=None, limits=limits) as client:
            app.state.client = client
            yield

    app = FastAPI(lifespan=opening_client)

    @app.post("/relay")
    async def relay(request: Request) -> StreamingResponse:
        body = await request.json()

        async def pass_on() -> AsyncGenerator[bytes]:
            async with app.state.client.stream("POST", upstream, json=body) as answer:
                async for line in answer.aiter_lines():
                    if line.startswith("data: {"):
                        chunk = json.loads(line[6:])
                        yield f"data: {json.dumps(chunk)}\n\n".encode()
            yield b"data: [DONE]\n\n"

        return StreamingResponse(pass_on(), media_type="text/event-stream")

    @app.post("/agent")
    async def agent(request: Request) -> StreamingResponse:
        body = await request.json()
        return StreamingResponse(_run(app.state.client, upstream, body), media_type="text/event-stream")

    return app


async def _run(client: httpx.AsyncClient, upstream: str, body: dict[str, Any]) -> AsyncGenerator[bytes]:
    messages = list(body["messages"])
    for _ in range(TURNS_MAX):
        text, calls = "", dict[int, dict[str, Any]]()
        request = {"model": body["model"], "stream": True, "messages": messages, "tools": TOOLS}
        async with client.stream("POST", upstream, json=request) as answer:
            async for line in answer.aiter_lines():
                if not line.startswith("data: {"):
                    continue
                for choice in json.loads(line[6:])["choices"]:
                    if content := choice["delta"].get("content"):
                        text += content
                        yield f"data: {json.dumps({'type': 'content', 'text': content})}\n\n".encode()
                    for call in choice["delta"].get("tool_calls", ()):
                        calls[call["index"]] = call
        messages.append({"role": "assistant", "content": text, "tool_calls": list(calls.values())})
        if not calls:
            return
        for call in calls.values():
            yield f"data: {json.dumps({'type': 'tool', 'id': call['id']})}\n\n".encode()
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": "noon"})


if __name__ == "__main__":
    run_app(make_app(sys.argv[1]))
