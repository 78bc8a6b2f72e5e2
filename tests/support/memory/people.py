"""Users whose every text contains a mark of their own, so that a search of all bytes finds whose data remains."""

import asyncio
import hashlib
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from headrace.errors import Overloaded
from headrace.streams import rpc_errors
from headrace.v1 import data_pb2
from services.runtime.auth.identity import ALL_SCOPES, Identity, acting_as
from tests.support.memory.engines import Files, Kept, ModelledTables, Tables
from tests.support.memory.messages import content, reasoning
from tests.support.memory.writing import Memory, run_line, step_line
from tests.support.postgresql import connected

ADA, BOB = Identity("acme", "ada"), Identity("acme", "bob")
FOREIGN = Identity("else", "ada")
ADMIN = Identity("acme", "op", scopes=ALL_SCOPES)
OWNER = "worker-1"
TTL_MS = 60_000


def mark(who: Identity, what: str) -> str:
    """Return a word that only this user's data contains."""
    return f"mark{who.tenant}{who.user}{what}{hashlib.sha256(f'{who}{what}'.encode()).hexdigest()[:12]}"


async def furnish(memory: Memory, who: Identity) -> dict[str, str]:
    """Give a user a chat with a blob, facts, a schedule and a key; return their ids."""
    ids: dict[str, str] = {}
    with acting_as(Identity(who.tenant, who.user, scopes=ALL_SCOPES)):
        ids["chat"], ids["run"] = await ask(memory, who, mark(who, "chat"))
        ids["blob"] = await memory.put_blob(ids["chat"], mark(who, "blob").encode())
        ids["fact"] = await memory.remember(mark(who, "fact"), topic=mark(who, "topic"))
        await memory.delete_fact(await memory.remember(mark(who, "gone")))
        ids["schedule"] = (
            await memory.call(
                "CreateSchedule", agent_key="writer", message=mark(who, "schedule"), cron="0 7 * * *", time_zone="UTC"
            )
        ).schedule.schedule_id
        ids["key"] = (await memory.call("CreateKey", name=mark(who, "key"), user=who.user, scopes=["ask"])).key.key_id
    return ids


async def ask(memory: Memory, who: Identity, text: str, chat_id: str = "") -> tuple[str, str]:
    """Hold a whole run, whose question, reasoning and answer contain the text."""
    with acting_as(who):
        chat_id, run_id = await memory.begin(f"asked {text}", chat_id)
        step = step_line(reasoning(f"thought {text}"), content(f"answered {text}"))
        step.charges.add(agent_key="writer", model="sim/demo", model_calls=1, input_tokens=10, cost_nano_usd=1_500)
        await memory.append(chat_id, run_id, step, run_line())
    return chat_id, run_id


async def share(memory: Memory, owner: Identity, chat_id: str, *participants: str) -> None:
    await memory.call_as(owner, "ShareChat", chat_id=chat_id, participants=participants)


async def request_erasure(memory: Memory, **wanted: str) -> data_pb2.Erasure:
    return (await memory.call_as(ADMIN, "EraseData", **wanted)).erasure


async def place_hold(memory: Memory, **wanted: str) -> data_pb2.Hold:
    return (await memory.call_as(ADMIN, "PlaceHold", **{"reason": "matter 1"} | wanted)).hold


async def claim(memory: Memory, owner: str = OWNER) -> list[data_pb2.Erasure]:
    return list((await memory.call_as(None, "ClaimErasures", owner=owner, ttl_ms=TTL_MS)).erasures)


async def erase_portion(memory: Memory, erasure_id: str) -> data_pb2.EraseStoredResponse:
    return await memory.call_as(None, "EraseStored", erasure_id=erasure_id, owner=OWNER, ttl_ms=TTL_MS)


async def finish(memory: Memory, erasure_id: str) -> data_pb2.Erasure:
    return (await memory.call_as(None, "FinishErasure", erasure_id=erasure_id, owner=OWNER)).erasure


async def erase_stored(memory: Memory, erasure_id: str) -> data_pb2.EraseStoredResponse:
    """Erase all portions, and return the last response."""
    await claim(memory)
    while True:
        try:
            if (portion := await erase_portion(memory, erasure_id)).is_done:
                return portion
        except Overloaded as error:  # it is not known everywhere yet
            await asyncio.sleep(error.retry_after_s or 0.1)


async def run_erasure(memory: Memory, erasure_id: str) -> data_pb2.Erasure:
    """Do what an orchestrator does for an erasure without a live run."""
    await erase_stored(memory, erasure_id)
    return await finish(memory, erasure_id)


async def erase(memory: Memory, **wanted: str) -> data_pb2.Erasure:
    return await run_erasure(memory, (await request_erasure(memory, **wanted)).erasure_id)


async def export(memory: Memory, who: Identity, user: str = "") -> dict[str, bytes]:
    """Return the entries of a user's archive."""
    entries: dict[str, bytearray] = {}
    sizes: dict[str, int] = {}
    name = ""
    with acting_as(who), rpc_errors():
        async for piece in memory.data.ReadStoredData(data_pb2.ExportDataRequest(user=user)):
            if piece.name:
                name = piece.name
                entries[name], sizes[name] = bytearray(), piece.size_bytes
            assert len(piece.data) <= 64 * 1024
            entries[name] += piece.data
    assert {name: len(data) for name, data in entries.items()} == sizes
    return {name: bytes(data) for name, data in entries.items()}


async def read_bytes(kept: Kept) -> dict[str, bytes]:
    """Return everything a store has on disk and in a bucket; for a database its own files, after a checkpoint."""
    if isinstance(kept, Files | Tables) and kept.place is not None:
        return await kept.place.read_all() | await read_bytes(replace(kept, place=None))
    if isinstance(kept, Files):
        return {str(path): path.read_bytes() for path in kept.folder.rglob("*") if path.is_file()}
    if isinstance(kept, ModelledTables):
        return {str(number): row for number, (_, row) in enumerate(kept.server.tables.read_all())}
    assert isinstance(kept, Tables)
    async with connected(kept.url) as connection:
        await connection.execute("CHECKPOINT")
        place = Path(str(await connection.fetchval("SHOW data_directory")))
        files = await connection.fetch(
            "SELECT oid, pg_relation_filepath(oid) FROM pg_class WHERE relkind IN ('r','i','t')"
        )
        paths = [place / row[1] for row in files if row[1]]
        return {str(path): await asyncio.to_thread(path.read_bytes) for path in paths if path.exists()}


async def take_samples(kept: Kept) -> None:
    """Have a database sample its tables for the planner, as it does by itself some time after many writes."""
    if isinstance(kept, Tables):
        async with connected(kept.url) as connection:
            await connection.execute("ANALYZE")


def find_marks(stored: dict[str, bytes], *words: str) -> list[str]:
    """Return where a word occurs, regardless of the text around it."""
    wanted = re.compile(b"|".join(re.escape(word.encode()) for word in words), re.IGNORECASE)
    return sorted(name for name, data in stored.items() if wanted.search(data))


def list_marks(who: Identity) -> list[str]:
    kinds = ("chat", "blob", "fact", "topic", "gone", "schedule", "shared")
    return [mark(who, kind) for kind in kinds]


def count(erasure: data_pb2.Erasure) -> dict[str, int]:
    return {item.name: item.count for item in erasure.erased}


def name_kept_items(erasure: data_pb2.Erasure) -> dict[str, str]:
    return {item.name: item.what for item in erasure.kept}


@asynccontextmanager
async def furnished(
    kept: Kept, *people: Identity, **options: object
) -> AsyncGenerator[tuple[Memory, list[dict[str, str]]]]:
    async with kept.memory(**options) as memory:
        yield memory, [await furnish(memory, who) for who in people]


async def put_run_webhook(memory: Memory, who: Identity, run_id: str, url: str) -> None:
    await memory.call_as(
        Identity(who.tenant, who.user, scopes=ALL_SCOPES),
        "PutRunWebhook",
        run_id=run_id,
        config_id="one",
        url=url,
        token=mark(who, "token"),
    )


async def release(memory: Memory, hold_id: str) -> data_pb2.Hold:
    return (await memory.call_as(ADMIN, "ReleaseHold", hold_id=hold_id)).hold
