"""instructor in the modes TOOLS, JSON and JSON_SCHEMA."""

from __future__ import annotations

from typing import Any

import instructor
import openai
from exercises import URL, WHICH, Place, report

ASK = [{"role": "user", "content": WHICH}]
CALL = [{"role": "user", "content": "Call Place."}]
CALL_PARTIAL = [{"role": "user", "content": "Call PartialPlace."}]
MODES = (instructor.Mode.JSON, instructor.Mode.JSON_SCHEMA)


def client(mode: instructor.Mode) -> Any:
    api = openai.AsyncOpenAI(base_url=URL, api_key="none", max_retries=0)
    return instructor.from_openai(api, mode=mode)


async def typed(model: str) -> Any:
    """In JSON and JSON_SCHEMA; both must give the same."""
    results = [await client(mode).create(model=model, messages=ASK, response_model=Place) for mode in MODES]
    assert results[0].model_dump() == results[1].model_dump()
    return results[0]


async def streamed_typed(model: str) -> Any:
    results = [await stream(mode, model, ASK) for mode in MODES]
    assert results[0] == results[1]
    return results[0]


async def typed_by_a_call(model: str) -> Any:
    return await client(instructor.Mode.TOOLS).create(model=model, messages=CALL, response_model=Place)


async def streamed_typed_by_a_call(model: str) -> Any:
    return await stream(instructor.Mode.TOOLS, model, CALL_PARTIAL)


async def stream(mode: instructor.Mode, model: str, messages: Any) -> Any:
    last = None
    async for part in client(mode).create_partial(model=model, messages=messages, response_model=Place):
        last = part
    assert last is not None
    return Place.model_validate(last.model_dump())


if __name__ == "__main__":
    report("instructor", globals())
