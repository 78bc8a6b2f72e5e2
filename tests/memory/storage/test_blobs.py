"""Blobs: stored next to the log by their content, including images of messages."""

import hashlib
import os
import time
from pathlib import Path

import orjson
import pytest

from headrace.errors import InvalidRequest, NotFound
from headrace.v1 import llm_pb2, memory_pb2
from services.memory.data.retention import DAY_S
from tests.support.memory.blobs import PNG, make_image_step
from tests.support.memory.engines import Files, Kept, Serve, logs_in, open_engine
from tests.support.memory.writing import Memory, new_id, query_line, run_line

pytestmark = pytest.mark.engines


async def test_a_blob_is_named_by_its_content(serve: Serve, folder: Path) -> None:
    chat_id = new_id()
    async with serve() as memory:
        blob_id = await memory.put_blob(chat_id, PNG)
        assert blob_id == hashlib.sha256(PNG).hexdigest()
        assert await memory.put_blob(chat_id, PNG) == blob_id
        assert await memory.put_blob(chat_id, b"", "") == hashlib.sha256(b"").hexdigest()
    assert len(list((folder / "blobs" / chat_id).iterdir())) == 2
    async with serve() as memory:
        assert await memory.blob(chat_id, blob_id) == memory_pb2.GetBlobResponse(mime_type="image/png", data=PNG)
        with pytest.raises(NotFound):
            await memory.blob(new_id(), blob_id)
        for name in ("0" * 64, "..", "../" + chat_id, "x"):
            with pytest.raises(NotFound):
                await memory.blob(chat_id, name)
        with pytest.raises(InvalidRequest):
            await memory.put_blob(chat_id, PNG, "image/png\nx")


@pytest.mark.engines("s3", "encrypted s3 postgres")
async def test_images_are_stored_by_reference_and_returned_inline(memory: Memory, kept: Kept) -> None:
    chat_id, run_id = await memory.begin()
    inline = llm_pb2.ImagePart(data=PNG, mime_type="image/png", detail="low")
    url = llm_pb2.ImagePart(url="data:image/gif;base64,R0lGODdh")
    away = llm_pb2.ImagePart(url="https://example.org/a.png")
    await memory.append(chat_id, run_id, make_image_step(inline, url, away))
    log = await kept.log(chat_id)
    parts = orjson.loads(log.splitlines()[1])["messages"][0]["content"]
    assert parts[1]["image_url"] == {"url": "blob:" + hashlib.sha256(PNG).hexdigest(), "detail": "low"}
    assert b"R0lG" not in log
    images = [part.image for part in (await memory.context(chat_id, run_id))[1].content[1:]]
    assert images == [inline, llm_pb2.ImagePart(data=b"GIF87a", mime_type="image/gif"), away]
    raw = orjson.loads((await memory.chat(chat_id=chat_id, include_raw_messages=True)).raw_messages)
    urls = [part["image_url"]["url"] for part in raw[1]["content"][1:]]
    assert urls[0].startswith("data:image/png;base64,iVBORw0KGgo")
    assert urls[1:] == ["data:image/gif;base64,R0lGODdh", "https://example.org/a.png"]


async def test_an_unknown_blob_reference_is_shown_as_text(memory: Memory) -> None:
    chat_id, run_id = await memory.begin_with(make_image_step(llm_pb2.ImagePart(url="blob:" + "0" * 64)))
    assert (await memory.context(chat_id, run_id))[1].content[1].text == "[image]"
    with pytest.raises(InvalidRequest, match="base64"):
        await memory.append(chat_id, run_id, make_image_step(llm_pb2.ImagePart(url="data:image/png;base64,*")))


async def test_blobs_are_deleted_with_their_chat(memory: Memory, folder: Path) -> None:
    chat_id, run_id = await memory.begin()
    blob_id = await memory.put_blob(chat_id, PNG)
    await memory.append(chat_id, run_id, run_line())
    copy = await memory.fork(chat_id)
    await memory.delete(chat_id)
    with pytest.raises(NotFound):
        await memory.blob(chat_id, blob_id)
    assert (await memory.blob(copy, blob_id)).data == PNG
    assert logs_in(folder) == [f"{copy}.json"]
    assert [path.name for path in (folder / "blobs").iterdir()] == [copy]


async def test_blobs_without_a_chat_are_deleted_after_a_day(serve: Serve, folder: Path) -> None:
    orphan, young, late = new_id(), new_id(), new_id()
    async with serve() as memory:
        chat_id, _ = await memory.begin()
        for owner_id in (chat_id, orphan, young, late):
            await memory.put_blob(owner_id, PNG)
        yesterday = time.time() - DAY_S - 60
        for owner_id in (chat_id, orphan, late):
            os.utime(folder / "blobs" / owner_id, (yesterday, yesterday))
        await memory.put_blob(late, PNG)
    async with open_engine(Files(folder)) as engine:
        assert await engine.blobs.delete_orphans(DAY_S) == [orphan]
        assert await engine.blobs.delete_orphans(DAY_S) == []
    async with serve() as memory:
        await memory.append(late, new_id(), query_line())
        for owner_id in (chat_id, young, late):
            assert (await memory.blob(owner_id, hashlib.sha256(PNG).hexdigest())).data == PNG
