"""LangGraph's prebuilt agent behind FastAPI, with its state in memory.

`python langgraph_server.py BASE_URL`, in its own environment, prints its URL. `/plain` has no tools, `/agent`
has one.
"""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import AsyncGenerator
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.prebuilt import create_react_agent
from serving import run_app


@tool
def city_datetime(city: str) -> str:
    """Return the time in a city."""
    return f"noon in {city}"


def make_app(base_url: str) -> FastAPI:
    app = FastAPI()
    agents: dict[tuple[str, bool], Any] = {}

    def find_agent(model: str, *, has_tools: bool) -> Any:
        if (model, has_tools) not in agents:
            chat = ChatOpenAI(model=model, base_url=base_url, api_key="none", streaming=True)
            tools = [city_datetime] if has_tools else []
            agents[model, has_tools] = create_react_agent(chat, tools, checkpointer=InMemorySaver())
        return agents[model, has_tools]

    def answer(body: dict[str, Any], *, has_tools: bool) -> StreamingResponse:
        return StreamingResponse(
            _run(find_agent(body["model"], has_tools=has_tools), body), media_type="text/event-stream"
        )

    @app.post("/plain")
    async def plain(request: Request) -> StreamingResponse:
        return answer(await request.json(), has_tools=False)

    @app.post("/agent")
    async def agent(request: Request) -> StreamingResponse:
        return answer(await request.json(), has_tools=True)

    return app


async def _run(agent: Any, body: dict[str, Any]) -> AsyncGenerator[bytes]:
    config = {"configurable": {"thread_id": str(uuid.uuid4())}}
    async for chunk, _ in agent.astream({"messages": body["messages"]}, config, stream_mode="messages"):
        if chunk.content:
            yield f"data: {json.dumps({'type': chunk.type, 'text': chunk.content})}\n\n".encode()


if __name__ == "__main__":
    run_app(make_app(sys.argv[1]))
