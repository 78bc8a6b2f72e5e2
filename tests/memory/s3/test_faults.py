"""A bucket that is away, slow or refuses requests: no acknowledged data is lost, and no deletion."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace

import pytest

from headrace.errors import NotFound, Overloaded
from headrace.v1 import llm_pb2
from services.memory.data.retention import ORPHAN_AGE_S
from services.runtime.auth.identity import acting_as
from tests.support.memory import people
from tests.support.memory.blobs import BLOB_ID, PNG, make_chat_with_blob, make_image_step
from tests.support.memory.engines import Stored, open_engine
from tests.support.memory.people import ADA
from tests.support.memory.writing import Memory, new_id, run_line
from tests.support.s3_store import QUICK, Place, Proxy, needs_s3, proxying

pytestmark = needs_s3

AWAY = ["slow_down", "hang", "hang_up"]


@pytest.fixture
async def proxy(place: Place) -> AsyncGenerator[Proxy]:
    async with proxying(place.settings.endpoint_url) as proxy:
        yield proxy


@pytest.fixture
def proxied(kept: Stored, proxy: Proxy) -> Stored:
    """The store, whose bucket is reached through the proxy."""
    assert kept.place is not None
    return replace(kept, place=kept.place.at(proxy.url))


async def wait_until_back(memory: Memory) -> None:
    """Wait until the pause after a failure is over."""
    async with asyncio.timeout(60):
        while True:
            try:
                await memory.put_blob(new_id(), b"")
            except Overloaded:
                await asyncio.sleep(0.05)
            else:
                return


@pytest.mark.parametrize("mode", AWAY)
async def test_calls_that_need_an_unavailable_bucket_are_refused_and_all_others_succeed(
    proxied: Stored, proxy: Proxy, mode: str
) -> None:
    async with proxied.memory() as memory:
        chat_id = await make_chat_with_blob(memory)
        proxy.fail(mode)
        for call in (memory.put_blob(chat_id, b"x"), memory.blob(chat_id, BLOB_ID), memory.fork(chat_id)):
            with pytest.raises(Overloaded, match="bucket of the blobs cannot be used") as caught:
                await call
            assert caught.value.retry_after_s
        await memory.begin_with(run_line(), message="goes on", chat_id=chat_id)
        assert len((await memory.chats()).chats) == 1
        proxy.mend()
        await wait_until_back(memory)
        assert (await memory.blob(chat_id, BLOB_ID)).data == PNG


async def test_callers_of_an_unavailable_bucket_do_not_all_wait(proxied: Stored, proxy: Proxy) -> None:
    async with proxied.memory() as memory:
        chat_id = await make_chat_with_blob(memory)
        proxy.fail("hang")
        with pytest.raises(Overloaded):
            await memory.blob(chat_id, BLOB_ID)
        requests_before = proxy.seen.total()
        await asyncio.gather(*(memory.blob(chat_id, BLOB_ID) for _ in range(50)), return_exceptions=True)
        # During the pause after a failure calls are refused at once; after it, one at a time probes the bucket.
        assert proxy.seen.total() - requests_before <= 2 * QUICK.attempts_max


async def test_callers_waiting_for_a_bucket_do_not_delay_others(kept: Stored, proxy: Proxy) -> None:
    assert kept.place is not None
    patient = replace(QUICK, patience_s=60.0, silence_s=60.0)
    async with replace(kept, place=kept.place.at(proxy.url, patient)).memory() as memory:
        chat_id = await make_chat_with_blob(memory)
        proxy.fail("hang")
        reading = [asyncio.create_task(memory.blob(chat_id, BLOB_ID)) for _ in range(200)]
        async with asyncio.timeout(50):
            while proxy.open < patient.requests_max:
                await asyncio.sleep(0.01)
            await memory.begin_and_end("goes on")
        done_tasks = [task for task in reading if task.done()]
        assert len(done_tasks) < len(reading)
        for task in reading:
            task.cancel()
        ends = await asyncio.gather(*reading, return_exceptions=True)
        # Calls that would wait for a thread are refused at once.
        assert {type(end) for end in ends} <= {asyncio.CancelledError, Overloaded}


async def test_a_message_is_not_acknowledged_before_its_image_is_stored(proxied: Stored, proxy: Proxy) -> None:
    async with proxied.memory() as memory:
        chat_id, run_id = await memory.begin()
        proxy.fail("slow_down")
        picture = make_image_step(llm_pb2.ImagePart(data=PNG, mime_type="image/png"))
        with pytest.raises(Overloaded):
            await memory.append(chat_id, run_id, picture)
        proxy.mend()
        await wait_until_back(memory)
        assert len(await memory.context(chat_id, run_id)) == 1
        await memory.append(chat_id, run_id, picture)
        assert (await memory.context(chat_id, run_id))[1].content[1].image.data == PNG


async def test_a_chat_whose_bucket_is_unavailable_is_not_deleted(proxied: Stored, proxy: Proxy) -> None:
    async with proxied.memory() as memory:
        chat_id = await make_chat_with_blob(memory)
        proxy.fail("slow_down")
        with pytest.raises(Overloaded):
            await memory.delete(chat_id)
        assert len((await memory.chats()).chats) == 1
        proxy.mend()
        await wait_until_back(memory)
        await memory.delete(chat_id)
        with pytest.raises(NotFound):
            await memory.blob(chat_id, BLOB_ID)


async def test_a_deletion_interrupted_by_the_bucket_is_finished_later(
    proxied: Stored, proxy: Proxy, place: Place
) -> None:
    async with proxied.memory() as memory:
        chat_id = await make_chat_with_blob(memory)
        proxy.fail("slow_down", only="DELETE")
        await memory.delete(chat_id)
        assert not (await memory.chats()).chats
        assert sorted(await place.read_all()) == [f"blobs/{chat_id}/{BLOB_ID}", f"deletions/{chat_id}"]
    proxy.mend()
    async with open_engine(proxied) as engine:
        await engine.blobs.delete_orphans(ORPHAN_AGE_S)
    assert await place.read_all() == {}


async def test_a_deletion_mark_of_an_existing_chat_deletes_nothing(proxied: Stored, place: Place) -> None:
    async with proxied.memory() as memory:
        chat_id = await make_chat_with_blob(memory)
        async with place.open() as bucket:
            await bucket.put(f"deletions/{chat_id}", BLOB_ID.encode())
    async with open_engine(proxied) as engine:
        await engine.blobs.finish_deletions()
    assert f"blobs/{chat_id}/{BLOB_ID}" in await place.read_all()


async def test_an_erasure_is_done_only_when_the_bucket_holds_nothing_of_the_user(
    proxied: Stored, proxy: Proxy, place: Place
) -> None:
    word = people.mark(ADA, "blob").encode()
    async with proxied.memory() as memory:
        ids = await people.furnish(memory, ADA)
        with acting_as(ADA):
            deleted = await people.ask(memory, ADA, "another")
            await memory.put_blob(deleted[0], word + b" of a deleted chat")
            proxy.fail("slow_down", only="DELETE")
            await memory.delete(deleted[0])
        erasure_id = (await people.request_erasure(memory, user="ada")).erasure_id
        await people.claim(memory)
        for _ in range(3):
            with pytest.raises(Overloaded):
                await people.erase_portion(memory, erasure_id)
        assert sum(word in found for found in (await place.read_all()).values()) == 2
        proxy.mend()
        await wait_until_back(memory)
        assert (await people.run_erasure(memory, erasure_id)).state == "done"
        assert not any(word in found for found in (await place.read_all()).values())
        with acting_as(ADA), pytest.raises(NotFound):
            await memory.blob(ids["chat"], ids["blob"])


async def test_an_erasure_is_not_done_while_objects_of_a_deleted_chat_remain(
    proxied: Stored, proxy: Proxy, place: Place
) -> None:
    async with proxied.memory() as memory:
        with acting_as(ADA):
            chat_id = await make_chat_with_blob(memory)
            proxy.fail("slow_down", only="DELETE")
            await memory.delete(chat_id)
        erasure_id = (await people.request_erasure(memory, user="ada")).erasure_id
        await people.erase_stored(memory, erasure_id)
        with pytest.raises(Overloaded, match="bucket of the blobs"):
            await people.finish(memory, erasure_id)
        proxy.mend()
        await wait_until_back(memory)
        assert (await people.finish(memory, erasure_id)).state == "done"
    assert not any(chat_id in key for key in await place.read_all())


async def test_a_service_starts_without_its_bucket_and_uses_it_once_it_is_back(proxied: Stored, proxy: Proxy) -> None:
    proxy.fail("hang_up")
    async with proxied.memory() as memory:
        chat_id, _ = await memory.begin_with(run_line())
        with pytest.raises(Overloaded):
            await memory.put_blob(chat_id, PNG)
        proxy.mend()
        await wait_until_back(memory)
        await memory.put_blob(chat_id, PNG)
