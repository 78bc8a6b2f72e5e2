"""Facts found by vectors, on both engines, with a real gateway server whose model knows a few words."""

import math
import sqlite3
import struct
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from headrace.errors import ContextLengthExceeded, DiskFull, InvalidRequest, Overloaded
from headrace.v1 import llm_pb2, llm_pb2_grpc
from services.memory.config import Config
from services.memory.facts.recall import MISSING_MAX, SHORT_CHARS_MAX
from tests.support.memory.engines import Serve, Tables
from tests.support.memory.summarising import serving_llm
from tests.support.memory.writing import Memory
from tests.support.postgresql import connected, needs_postgres
from tests.support.small_disk import needs_mount, serving_on_small_disk

MEANINGS = ({"boat", "ship", "vessel"}, {"oslo", "town", "city"})
MODEL = "sim/embed-1"

# Any: the stub wants every RPC implemented.
_Servicer: Any = llm_pb2_grpc.LlmServiceServicer


class Embedder(_Servicer):
    """Gives each text a number for each of MEANINGS, and records the texts and models of its requests."""

    def __init__(self) -> None:
        self.inputs: list[list[str]] = []
        self.models: list[str] = []
        self.error: Exception | None = None
        self.chars_max, self.too_long = 1_000_000, Exception()

    async def Embed(self, request: llm_pb2.EmbedRequest, context: Any) -> llm_pb2.EmbedResponse:
        if self.error is not None:
            raise self.error
        if any(len(given.text) > self.chars_max for given in request.inputs):
            raise self.too_long
        self.models.append(f"{request.provider_key}/{request.model}")
        self.inputs.append([given.text for given in request.inputs])
        return llm_pb2.EmbedResponse(
            embeddings=[llm_pb2.Embedding(vector=self.make_vector(text)) for text in self.inputs[-1]]
        )

    def make_vector(self, text: str) -> bytes:
        words = set(text.lower().strip(".?").split())
        return struct.pack("<3f", *(3.0 * bool(words & meaning) for meaning in MEANINGS), 0.5)


@asynccontextmanager
async def embedding(
    serve: Serve, embedder: Embedder | None = None, model: str = MODEL
) -> AsyncGenerator[tuple[Memory, Embedder]]:
    """Serve memory with facts embedded by `embedder`, or by a new one."""
    embedder = embedder or Embedder()
    async with serving_llm(embedder) as (llm, _), serve(llm=llm, fact_embeddings=model) as memory:
        yield memory, embedder


@pytest.mark.engines
async def test_a_fact_is_found_by_other_words_and_embedded_once(serve: Serve) -> None:
    embedder = Embedder()
    async with serve() as memory:
        await memory.remember("My boat is Ada.", topic="boat")
        assert await memory.recall("which vessel") == [], "off unless there is a model"
    async with embedding(serve, embedder) as (memory, _):
        town = await memory.remember("Lives in Oslo.")
        assert await memory.recall("which vessel") == ["My boat is Ada."]
        assert embedder.inputs == [["which vessel", "boat My boat is Ada.", "Lives in Oslo."]]
        assert await memory.recall("a city?") == ["Lives in Oslo."]
        assert set(await memory.recall("Ada city")) == {"My boat is Ada.", "Lives in Oslo."}
        await memory.update_fact(town, text="Lives on a ship.")
        assert set(await memory.recall("vessel")) == {"My boat is Ada.", "Lives on a ship."}
    async with embedding(serve, embedder) as (memory, _):
        await memory.recall("again")
    assert embedder.inputs[3:] == [["vessel", "Lives on a ship."], ["again"]], "changed texts alone, and kept"


@pytest.mark.engines
async def test_a_search_calls_no_model_and_leaves_room_for_chats(serve: Serve) -> None:
    async with embedding(serve) as (memory, embedder):
        chat, _ = await memory.begin("Where is the harbour?")
        for number in range(3):
            await memory.remember(f"{number} boat")  # near every text, as with a model whose texts are all alike
        hits = await memory.search("vessel harbour", "all", limit=3)
        assert [hit.chat_id for hit in hits] == [chat]
        assert embedder.inputs == []
        assert [hit.excerpt for hit in await memory.search("boat", "all", limit=3)] == ["2 boat", "1 boat", "0 boat"]


@pytest.mark.engines
async def test_without_vectors_facts_are_found_by_words(serve: Serve) -> None:
    async with embedding(serve) as (memory, embedder):
        await memory.remember("My boat is Ada.")
        embedder.error = Overloaded("full")
        assert await memory.recall("boat") == ["My boat is Ada."]
        embedder.error = None
        assert await memory.recall("vessel") == ["My boat is Ada."]


@needs_mount
async def test_on_a_full_disk_facts_are_found_without_storing_vectors(tmp_path: Path) -> None:
    embedder, folder = Embedder(), tmp_path / "chats"
    async with serving_llm(embedder) as (_, address):
        env = {
            "HEADRACE_MEMORY_CHAT_DIR": str(folder),
            "HEADRACE_MEMORY_FACT_EMBEDDINGS": MODEL,
            "HEADRACE_MEMORY_LLM_GATEWAY_ADDRESS": address,
        }
        async with serving_on_small_disk("memory", folder, env) as (disk, channel):
            memory = Memory.reach(channel)
            await memory.remember("My boat is Ada.")
            disk.fill("bytes")
            with pytest.raises(DiskFull):
                await memory.remember("x" * 8000)
            for _ in range(2):
                assert await memory.recall("vessel") == ["My boat is Ada."]
            disk.make_room()
            assert await memory.recall("vessel") == ["My boat is Ada."]
    assert embedder.inputs[:2] == [["vessel", "My boat is Ada."]] * 2


async def test_a_failure_of_the_gateway_is_logged_with_its_status(serve: Serve) -> None:
    async with embedding(serve) as (memory, embedder):
        await memory.remember("My boat is Ada.")
        embedder.error = RuntimeError("a bug of the gateway")
        with capture_logs() as logs:
            await memory.recall("boat")
    assert [line["reason"] for line in logs if line["event"] == "facts not embedded"] == ["INTERNAL"]


@pytest.mark.parametrize("error", [ContextLengthExceeded("too long"), InvalidRequest.of("inputs", "too long")])
async def test_texts_that_are_too_long_for_the_model_are_shortened(serve: Serve, error: Exception) -> None:
    async with embedding(serve) as (memory, embedder):
        await memory.remember("My boat is Ada.")
        await memory.remember("Oslo " + "x" * 4000)
        embedder.chars_max, embedder.too_long = SHORT_CHARS_MAX, error
        assert await memory.recall("vessel") == ["My boat is Ada."]
        assert [len(text) for text in embedder.inputs[-1]] == [6, 15, SHORT_CHARS_MAX]
        embedder.chars_max = 100
        await memory.remember("Town " + "x" * 4000)
        assert await memory.recall("vessel") == ["My boat is Ada."]
        assert embedder.inputs[-1] == ["vessel"], "what is refused even so does not cost the query its vector"


async def test_many_facts_are_embedded_a_batch_at_a_time(serve: Serve) -> None:
    async with embedding(serve) as (memory, embedder):
        for number in range(MISSING_MAX + 3):
            await memory.remember(f"{number} boat")
        for _ in range(3):
            await memory.recall("vessel")
    assert [len(inputs) - 1 for inputs in embedder.inputs] == [MISSING_MAX, 3, 0]


async def test_a_change_of_model_replaces_the_vectors(serve: Serve, folder: Path) -> None:
    embedder = Embedder()
    for model in (MODEL, "sim/embed-2"):
        async with embedding(serve, embedder, model) as (memory, _):
            if model == MODEL:
                await memory.remember("My boat is Ada.")
            assert await memory.recall("vessel") == ["My boat is Ada."]
    assert [len(inputs) for inputs in embedder.inputs] == [2, 2]
    assert embedder.models == [MODEL, "sim/embed-2"]
    assert [model for _, model in read_stored(folder).values()] == ["sim/embed-2"]


def read_stored(folder: Path) -> dict[str, tuple[bytes, str]]:
    """Return the stored vectors and their models by fact id."""
    with closing(sqlite3.connect(folder / "records.sqlite")) as database:
        return {row[0]: (row[1], row[2]) for row in database.execute("SELECT fact_id, vector, vector_model FROM facts")}


async def test_vectors_of_another_model_are_not_compared(serve: Serve) -> None:
    embedder = Embedder()
    async with embedding(serve, embedder) as (memory, _):
        for number in range(MISSING_MAX + 1):
            await memory.remember(f"{number} boat")
        for _ in range(2):
            assert await memory.recall("vessel")
    async with embedding(serve, embedder, "sim/embed-2") as (memory, _):
        assert len(await memory.recall("vessel", limit=100)) == MISSING_MAX
        assert len(await memory.recall("vessel", limit=100)) == MISSING_MAX + 1


@pytest.mark.engines
async def test_a_fact_that_ends_another_keeps_the_vectors_of_the_others(serve: Serve) -> None:
    async with embedding(serve) as (memory, embedder):
        ended = await memory.remember("My boat is Ada.", topic="boat")
        await memory.remember("Lives in Oslo.", topic="home")
        await memory.recall("vessel")
        new = await memory.remember("My boat is Bea.", topic="boat")
        assert await memory.recall("vessel") == ["My boat is Bea."]
        await memory.update_fact(new, topic="ship")
        await memory.delete_fact(ended)
        assert await memory.recall("vessel") == ["My boat is Bea."]
    assert embedder.inputs[1:] == [["vessel", "boat My boat is Bea."], ["vessel", "ship My boat is Bea."]]


async def test_a_deleted_facts_vector_is_in_no_file(serve: Serve, folder: Path) -> None:
    async with embedding(serve) as (memory, embedder):
        kept_id, deleted_id = await memory.remember("Lives in Oslo."), await memory.remember("My boat is Ada.")
        await memory.recall("vessel")
        await memory.delete_fact(deleted_id)
    facts = read_stored(folder)
    assert facts[deleted_id] == (b"", "")
    assert facts[kept_id][0] == make_unit_vector(embedder, "Lives in Oslo.")
    vector = make_unit_vector(embedder, "My boat is Ada.")
    assert find_files_with(folder, vector) == []


def find_files_with(folder: Path, data: bytes) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and data in path.read_bytes()]


def make_unit_vector(embedder: Embedder, text: str) -> bytes:
    numbers = struct.unpack("<3f", embedder.make_vector(text))
    length = math.hypot(*numbers)
    return struct.pack("<3f", *(number / length for number in numbers))


@needs_postgres
async def test_a_deleted_facts_vector_is_in_no_row(database_url: str) -> None:
    async with embedding(Tables(database_url).memory) as (memory, _):
        deleted_id = await memory.remember("My boat is Ada.")
        await memory.recall("vessel")
        await memory.delete_fact(deleted_id)
    async with connected(database_url) as connection:
        assert [tuple(row) for row in await connection.fetch("SELECT vector, vector_model FROM facts")] == [(b"", "")]


@pytest.mark.parametrize("name", ["embed-1", "/embed-1", "sim/"])
def test_a_model_without_its_provider_is_rejected(name: str) -> None:
    with pytest.raises(ValueError, match="expected provider/model"):
        Config(fact_embeddings=name)


def test_a_model_without_a_gateway_is_rejected() -> None:
    with pytest.raises(ValueError, match="needs HEADRACE_MEMORY_LLM_GATEWAY_ADDRESS"):
        Config(fact_embeddings=MODEL, llm_gateway_address="")
