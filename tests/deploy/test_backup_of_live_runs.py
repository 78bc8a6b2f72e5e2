"""A backup during fifty live runs, restored into an empty installation: everything acknowledged before is there,
including uploaded pictures, and the runs continue to their end.
"""

import asyncio
import base64
import io
import json
import os
import subprocess
import tarfile
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from PIL import Image

from benchmarks.postgresql import FAST, Server
from benchmarks.postgresql import running as running_postgres
from services.simulator.script import parse_script
from services.simulator.server import simulator
from tests.support.postgresql import needs_postgres
from tests.support.s3_store import Place, needs_s3, running_store
from tests.support.suite import Suite, running

BACKUP = Path(__file__).parents[2] / "deploy" / "backup"

LIVE = 50

CALL: dict[str, Any] = {"steps": [{"toolCall": "mock_city_weather", "id": "call_1", "arguments": ['{"city":"Paris"}']}]}

WHILE_BACKED_UP: list[dict[str, Any]] = [
    {"match": {"turn": 1}} | CALL,
    {"steps": [{"content": "begun "}, {"stall": True}]},
]

AFTERWARDS: list[dict[str, Any]] = [
    {"match": {"turn": 1, "text": "^ask "}} | CALL,
    {"steps": [{"content": "restored"}]},
]


@contextmanager
def database(engine: str) -> Generator[Server | None]:
    if engine == "files":
        yield None
        return
    with running_postgres(*FAST) as server:
        yield server


@contextmanager
def bucket(is_wanted: bool) -> Generator[Place | None]:
    if not is_wanted:
        yield None
        return
    with running_store() as settings:
        yield Place(settings)


def storage_settings(server: Server | None, place: Place | None) -> dict[str, str]:
    at = {} if server is None else {"HEADRACE_DATABASE_URL": server.new_database()}
    return at if place is None else at | place.variables


async def copy_bucket(place: Place) -> Place:
    """Copy a place's objects into another one, as a store's own tools do."""
    objects, copy = await place.read_all(), Place(place.settings)
    async with copy.open() as target:
        for key, body in objects.items():
            await target.put(key, body)
    assert sum(key.startswith("blobs/") for key in objects) == LIVE
    return copy


def draw_picture(number: int) -> bytes:
    """Return a picture that differs from those of all other runs."""
    encoded = io.BytesIO()
    Image.new("RGB", (8, 8), (number, 255 - number, 99)).save(encoded, "PNG")
    return encoded.getvalue()


async def upload(suite: Suite, number: int) -> dict[str, Any]:
    """Upload a run's picture; return the fields of the query that refers to it."""
    form = aiohttp.FormData()
    form.add_field("file", draw_picture(number), filename="sky.png")
    async with suite.http.post(f"{suite.url}/api/upload", data=form) as response:
        uploaded = await response.json()
    return {"chatId": uploaded["chatId"], "references": [uploaded["data"]]}


@asynccontextmanager
async def live_run(suite: Suite, number: int, sent: dict[str, Any]) -> AsyncGenerator[tuple[str, str, str]]:
    """Start a run with a picture and read it to its first answer delta; yield its question, chat and run."""
    question = f"ask {number} about the weather"
    async with suite.query(question, "seeing", **sent) as events:
        chat_id = run_id = ""
        async for event in events:
            chat_id, run_id = chat_id or event.get("chatId", ""), run_id or event.get("runId", "")
            if event["type"] == "content.delta":
                break
        yield question, chat_id, run_id


def restore(backup: Path, folder: Path, database_url: str) -> None:
    with tarfile.open(backup) as tar:
        tar.extractall(folder, filter="data")
    if database_url:
        subprocess.run(
            ["pg_restore", "--no-owner", "--exit-on-error", f"--dbname={database_url}", folder / "database.dump"],
            check=True,
        )


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("engine", "has_bucket"),
    [
        ("files", False),
        pytest.param("postgres", False, marks=needs_postgres),
        pytest.param("files", True, marks=needs_s3),
        pytest.param("postgres", True, marks=[needs_postgres, needs_s3]),
    ],
)
async def test_a_restored_backup_has_everything_acknowledged_and_its_runs_continue(
    tmp_path: Path, engine: str, has_bucket: bool
) -> None:
    with database(engine) as server, bucket(has_bucket) as place:
        async with asyncio.timeout(900), simulator(WHILE_BACKED_UP) as sim:
            runs: list[tuple[str, str, str]] = []
            storage = storage_settings(server, place)
            async with (
                running(tmp_path / "config", tmp_path / "data", sim, **storage) as suite,
                AsyncExitStack() as open_runs,
            ):
                sent = [await upload(suite, number) for number in range(LIVE)]
                entered = (
                    open_runs.enter_async_context(live_run(suite, number, message))
                    for number, message in enumerate(sent)
                )
                runs = await asyncio.gather(*entered)
                command = [BACKUP, tmp_path / "data", tmp_path / "backup.tar"]
                await asyncio.to_thread(subprocess.run, command, env=os.environ | storage, check=True)
                place = place and await copy_bucket(place)
            sim.rules = parse_script(AFTERWARDS)
            sim.requests.clear()
            storage = storage_settings(server, place)
            await asyncio.to_thread(
                restore, tmp_path / "backup.tar", tmp_path / "restored", storage.get("HEADRACE_DATABASE_URL", "")
            )
            async with running(tmp_path / "config", tmp_path / "restored", sim, **storage) as suite:
                await asyncio.gather(*(check_restored(suite, *run) for run in runs))
                message_texts = [json.dumps(body["messages"]) for body in suite.requests()]
                for number, (question, _, _) in enumerate(runs):
                    picture = base64.b64encode(draw_picture(number)).decode()
                    assert any(question in messages and picture in messages for messages in message_texts), number
                for _, chat_id, _ in runs[::10]:
                    assert (await suite.ask("and on", "plain", chatId=chat_id))[-1]["type"] == "run.complete"
                assert len((await suite.get("/api/chats", pageSize="100"))[1]["data"]) == LIVE


async def check_restored(suite: Suite, question: str, chat_id: str, run_id: str) -> None:
    """Assert that the run continues to its end, with everything that was stored of it."""
    events = await suite.follow(run_id)
    assert events[-1]["type"] == "run.complete", events[-1]
    # The call is not repeated: its stored result is used.
    assert [event["type"] for event in events].count("tool.result") == 1
    status, chat = await suite.get("/api/chat", chatId=chat_id)
    assert (status, question in json.dumps(chat)) == (200, True)
