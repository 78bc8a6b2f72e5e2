"""OpenAI's official client against the whole suite: agents as models, over real processes."""

import asyncio
import base64
import io
import struct
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI
from PIL import Image

from tests.support.suite import Suite

pytestmark = pytest.mark.asyncio(loop_scope="session")


@asynccontextmanager
async def client(suite: Suite) -> AsyncGenerator[AsyncOpenAI]:
    async with asyncio.timeout(300), AsyncOpenAI(base_url=f"{suite.url}/v1", api_key="none", max_retries=0) as api:
        yield api


LOCATE: Any = {
    "type": "function",
    "function": {"name": "locate", "description": "Where the user is", "parameters": {"type": "object"}},
}
BOTH_LOCATED = [
    {
        "match": {"turn": 1},
        "steps": [
            {"toolCall": "locate", "id": "call_a", "arguments": '{"who":"Ann"}'},
            {"toolCall": "locate", "id": "call_b", "index": 1, "arguments": '{"who":"Bob"}'},
        ],
    },
    {"steps": [{"content": "Lyon and Paris."}]},
]


@pytest.mark.parametrize("parallel", [None, False])
async def test_parallel_calls_come_together_unless_the_caller_forbids_it(suite: Suite, parallel: bool | None) -> None:
    suite.play(*BOTH_LOCATED)
    messages: Any = [{"role": "user", "content": "Where are we?"}]
    fields: Any = {} if parallel is None else {"parallel_tool_calls": parallel}
    async with client(suite) as api:
        first = await api.chat.completions.create(model="react", messages=messages, tools=[LOCATE], **fields)
        calls: Any = first.choices[0].message.tool_calls
        places = dict(zip((call.id for call in calls), ("Lyon", "Paris"), strict=False))
        results: Any = [{"role": "tool", "tool_call_id": id, "content": place} for id, place in places.items()]
        messages += [first.choices[0].message.model_dump(exclude_none=True), *results]
        second = await api.chat.completions.create(model="react", messages=messages, tools=[LOCATE], **fields)
    who = [call.function.arguments for call in calls]
    assert who == (['{"who":"Ann"}', '{"who":"Bob"}'] if parallel is None else ['{"who":"Ann"}'])
    assert second.choices[0].message.content == "Lyon and Paris."
    request = suite.requests()[-1]
    assert request.get("parallel_tool_calls") == (parallel is None)
    results_sent = [message["content"] for message in request["messages"] if message["role"] == "tool"]
    assert results_sent[0] == "Lyon"
    assert results_sent[1] == "Paris" if parallel is None else "only one tool runs at a time" in results_sent[1]


def draw_square() -> bytes:
    encoded = io.BytesIO()
    Image.new("RGB", (8, 8), "red").save(encoded, "PNG")
    return encoded.getvalue()


async def test_a_picture_is_sent_to_the_model_and_stored_for_the_chat(suite: Suite) -> None:
    suite.play({"steps": [{"content": "A red square."}]})
    picture = draw_square()
    url = f"data:image/png;base64,{base64.b64encode(picture).decode()}"
    parts: Any = [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": url}}]
    async with client(suite) as api:
        answer = await api.chat.completions.create(model="plain", messages=[{"role": "user", "content": parts}])
    assert answer.choices[0].message.content == "A red square."
    image_parts = [
        part for message in suite.requests()[-1]["messages"] for part in message["content"] if "image_url" in part
    ]
    assert image_parts == [{"type": "image_url", "image_url": {"url": url}}]
    chat_id = answer.model_dump()["metadata"]["chat_id"]
    _, chat = await suite.get("/api/chat", chatId=chat_id)
    (reference,) = chat["data"]["references"]
    async with suite.http.get(suite.url + reference["url"]) as response:
        assert await response.read() == picture
    (log,) = suite.data_dir.rglob(f"{chat_id}.json")
    assert url not in log.read_text()


async def test_a_conversation_of_another_program_reaches_the_provider_with_its_roles(suite: Suite) -> None:
    suite.play({"steps": [{"content": "Yes."}]})
    called = LOCATE["function"] | {"arguments": "{}"}
    history: Any = [
        {"role": "system", "content": "Speak French."},
        {"role": "user", "content": "Where am I?"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [LOCATE | {"id": id, "function": called} for id in ("toolu/0", "toolu/1")],
        },
        {"role": "tool", "tool_call_id": "toolu/0", "content": "Lyon"},
        {"role": "tool", "tool_call_id": "toolu/1", "content": "France"},
    ]
    async with client(suite) as api:
        await api.chat.completions.create(model="react", messages=history)
        messages: Any = [*history, {"role": "developer", "content": "Be brief."}, {"role": "user", "content": "Sure?"}]
        first = await api.chat.completions.create(model="react", messages=messages)
        chat_id: str = first.model_dump()["metadata"]["chat_id"]
        last: Any = [{"role": "user", "content": "Really?"}]
        await api.chat.completions.create(model="react", messages=last, metadata={"chat_id": chat_id})
        with pytest.raises(openai.BadRequestError) as caught:
            await api.chat.completions.create(model="react", messages=[*history[:2], *history[3:]])
        first_request, second_request, third_request = (request["messages"] for request in suite.requests()[-3:])
    assert caught.value.param == "messages[2].tool_call_id"
    assert [message["role"] for message in first_request] == ["system", "user", "assistant", "tool", "tool"]
    assert [message["content"].partition("\n\n<system_reminder>")[0] for message in first_request[3:]] == [
        "Lyon",
        "France",
    ]
    assert [call["id"] for call in first_request[2]["tool_calls"]] == [
        message["tool_call_id"] for message in first_request[3:]
    ]
    assert [message["role"] for message in second_request] == [message["role"] for message in first_request] + ["user"]
    assert second_request[0]["content"].endswith("\n\nSpeak French.\n\nBe brief.")
    assert third_request[: len(second_request)] == second_request
    answer_message, question_message = third_request[len(second_request) :]
    assert answer_message["content"] == "Yes."
    assert question_message["content"].startswith("Really?\n\n<system_reminder>")


async def test_embeddings_of_similar_texts_are_similar(suite: Suite) -> None:
    async with client(suite) as api:
        answer = await api.embeddings.create(model="embed-1", input=["a warm day", "warm day", "cold tea"])
        short = await api.embeddings.create(model="embed-1", input="a", dimensions=8, encoding_format="float")
        with pytest.raises(openai.NotFoundError) as caught:
            await api.embeddings.create(model="sim-1", input="a")
    first, near, far = (embedding_item.embedding for embedding_item in answer.data)
    assert _measure_nearness(first, near) > 0.5 > _measure_nearness(first, far)
    assert answer.usage.prompt_tokens == 7
    assert len(short.data[0].embedding) == 8
    assert caught.value.code == "model_not_found"
    status, whole = await suite.post(
        "/api/embeddings", {"model": "embed-1", "inputs": [{"text": "a"}], "dimensions": 8}
    )
    assert status == 200
    vector = struct.unpack("<8f", base64.b64decode(whole["data"]["embeddings"][0]["vector"]))
    assert vector == pytest.approx(short.data[0].embedding)
    assert whole["data"]["usage"]["costUsd"] > 0


def _measure_nearness(vector: list[float], other_vector: list[float]) -> float:
    return sum(a * b for a, b in zip(vector, other_vector, strict=True))


async def test_input_items_are_listed_in_pages_and_deleted_with_their_response(suite: Suite) -> None:
    items: Any = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Where am I?"},
        {"type": "function_call", "call_id": "c.1", "name": "locate", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c.1", "output": "Lyon"},
        {"role": "assistant", "content": "In Lyon."},
        {"role": "user", "content": "Sure?"},
    ]
    async with client(suite) as api:
        answer = await api.responses.create(model="plain", input=items)
        listed: Any = [item async for item in api.responses.input_items.list(answer.id, limit=4, order="asc")]
        page = await api.responses.input_items.list(answer.id, limit=2)
        with pytest.raises(openai.BadRequestError) as caught:
            await api.responses.input_items.list(answer.id, after="msg_none")
        with pytest.raises(openai.BadRequestError, match="limit"):
            await api.responses.input_items.list(answer.id, extra_query={"limit": "01005"})
        more = await api.responses.create(model="plain", input="Thanks", previous_response_id=answer.id)
        with pytest.raises(openai.BadRequestError, match="DELETE /api/chat"):
            await api.responses.delete(more.id)
        alone = await api.responses.create(model="plain", input="hi")
        await api.responses.delete(alone.id)
        for ask in (api.responses.retrieve, api.responses.delete, api.responses.input_items.list):
            with pytest.raises(openai.NotFoundError):
                await ask(alone.id)
        assert (await api.responses.retrieve(more.id)).status == "completed"
    assert [item.type for item in listed] == [
        *("message", "message", "function_call", "function_call_output", "message", "message")
    ]
    assert [item.role for item in listed if item.type == "message"] == ["system", "user", "assistant", "user"]
    assert [item.content[0].text for item in listed if item.type == "message"][2:] == ["In Lyon.", "Sure?"]
    assert (listed[2].call_id, listed[2].name, listed[3].output) == ("c.1", "locate", "Lyon")
    assert [item.id for item in page.data] == [listed[5].id, listed[4].id]
    assert page.has_more
    assert caught.value.param == "after"


async def test_a_running_response_is_not_deleted(suite: Suite) -> None:
    suite.play({"steps": [{"content": "first"}, {"stall": True}]})
    async with client(suite) as api:
        running = await api.responses.create(model="plain", input="go", background=True)
        with pytest.raises(openai.ConflictError) as caught:
            await api.responses.delete(running.id)
        await api.responses.cancel(running.id)
        await api.responses.delete(running.id)
    assert caught.value.code == "chat_busy"


async def test_sounds_and_documents_are_sent_and_a_picture_again_when_a_tool_reads_it(suite: Suite) -> None:
    wave = b"RIFF\x24\0\0\0WAVEfmt " + bytes(24)
    suite.play(
        {
            "match": {"turn": 1},
            "steps": [{"toolCall": "read_file", "id": "call_r", "arguments": '{"path":"uploads/red.png"}'}],
        },
        {"steps": [{"content": "All of it is red."}]},
    )
    async with client(suite) as api:
        report = await api.files.create(file=("a.pdf", b"%PDF-1.7"), purpose="user_data")
        picture = await api.files.create(file=("red.png", draw_square()), purpose="vision")
        parts: Any = [
            {"type": "input_text", "text": "What is it?"},
            {"type": "input_image", "file_id": picture.id, "detail": "low"},
            {"type": "input_audio", "input_audio": {"data": base64.b64encode(wave).decode(), "format": "wav"}},
            {"type": "input_file", "file_id": report.id},
        ]
        answer = await api.responses.create(model="seeing", input=[{"role": "user", "content": parts}])
    assert answer.output_text.endswith("All of it is red.")
    messages = suite.requests()[-1]["messages"]
    kinds = [
        [part["type"] for part in message["content"] if part["type"] != "text"]
        for message in messages
        if message["role"] == "user" and not isinstance(message["content"], str)
    ]
    assert [kind for kind in kinds if kind] == [["image_url", "input_audio", "file"], ["image_url"]]
    (result,) = [message["content"] for message in messages if message["role"] == "tool"]
    assert result.startswith("[image/png: uploads/red.png, 8 x 8 pixels")
