"""An erasure through the whole suite: requested over HTTP, interrupted by kill -9, and done after the next start."""

import asyncio
import hashlib
import io
import json
import os
import signal
import tarfile
from collections.abc import Generator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg
import pytest

from benchmarks import postgresql
from benchmarks.postgresql import FAST, Server
from services.simulator.server import simulator
from tests.support.clients.network import find_free_port
from tests.support.otlp import collector
from tests.support.postgresql import needs_postgres
from tests.support.suite import COMMAND, Suite, running, wait_for_exit
from tests.support.tiers import check_first

AT_ONCE = {"HEADRACE_MEMORY_ERASE_REWRITES": "true", "HEADRACE_MEMORY_ERASE_RECEIPT_AFTER_S": "0"}
"""Settings with which an erasure leaves nothing to do for later."""

SCOPES = ["ask", "answer", "operate", "read_content", "publish", "admin"]
KEYS = {"ada": "a" * 64, "bob": "b" * 64, "op": "c" * 64}
MARK = "markofadathatnobodyelsehas"
STEPS: list[dict[str, Any]] = [
    {
        "match": {"text": "write"},
        "steps": [
            {
                "toolCall": "_bash_",
                "id": "c1",
                "arguments": [json.dumps({"command": f"echo {MARK} | tee outputs/n.txt"})],
            }
        ],
    },
    {"match": {"text": "stall"}, "steps": [{"content": MARK}, {"stall": True}]},
    {"steps": [{"content": "noted"}]},
]


def write_keys(folder: Path) -> dict[str, str]:
    entries = [
        {
            "sha256": hashlib.sha256(key.encode()).hexdigest(),
            "tenant": "mill",
            "user": user,
            "scopes": SCOPES if user == "op" else ["ask", "answer"],
        }
        for user, key in KEYS.items()
    ]
    path = folder / "api-keys.json"
    path.write_text(json.dumps({"keys": entries}))
    return {
        "HEADRACE_AUTH": "api_key",
        "HEADRACE_AUTH_API_KEYS_FILE": str(path),
        "HEADRACE_ORCHESTRATOR_ERASURES_LOOK_S": "0.2",
    }


def auth_header(user: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {KEYS[user]}"}


async def ask(suite: Suite, user: str, message: str, until: str = "", **fields: Any) -> str:
    """Ask, read to the end or to an event of this type, and return the chat's id."""
    body = {"message": message, "agentKey": "react"} | fields
    async with suite.http.post(f"{suite.url}/api/query", json=body, headers=auth_header(user)) as response:
        assert response.status == 200, await response.text()
        chat_id = ""
        async for line in response.content:
            if line.startswith(b"data: {"):
                event = json.loads(line[6:])
                chat_id = event.get("chatId", chat_id)
                if until and event["type"] == until:
                    break
    return chat_id


async def call(suite: Suite, caller: str, verb: str, path: str, /, **body: str) -> Any:
    request_options: Any = {"json": body} if verb == "POST" else {"params": body}
    async with suite.http.request(verb, suite.url + path, headers=auth_header(caller), **request_options) as response:
        return response.status, await response.json()


async def wait_until_done(suite: Suite, erasure_id: str) -> dict[str, Any]:
    while True:
        _, answer = await call(suite, "op", "GET", "/api/data/erasure", erasureId=erasure_id)
        if answer["data"]["state"] == "done":
            return answer["data"]
        await asyncio.sleep(0.1)


async def export(suite: Suite, user: str, **params: str) -> dict[str, bytes]:
    async with suite.http.get(f"{suite.url}/api/data/export", headers=auth_header(user), params=params) as response:
        assert response.status == 200, await response.text()
        assert response.content_type == "application/x-tar"
        with tarfile.open(fileobj=io.BytesIO(await response.read())) as archive:
            files = {member.name: archive.extractfile(member) for member in archive.getmembers()}
            return {name: file.read() for name, file in files.items() if file is not None}


def find_mark(folder: Path) -> list[str]:
    return sorted(str(path) for path in folder.rglob("*") if path.is_file() and MARK.encode() in path.read_bytes())


async def create_data(suite: Suite) -> dict[str, str]:
    chats = {"ada": await ask(suite, "ada", f"{MARK} hello"), "bob": await ask(suite, "bob", "good morning")}
    await ask(suite, "ada", f"write {MARK}", chatId=chats["ada"])
    await call(suite, "ada", "POST", "/api/facts", text=f"likes {MARK}")
    await call(suite, "bob", "POST", "/api/facts", text="likes tea")
    return chats


async def test_an_export_has_a_manifest_with_correct_hashes(tmp_path: Path) -> None:
    async with (
        asyncio.timeout(600),
        simulator(STEPS) as sim,
        running(tmp_path / "config", tmp_path / "data", sim, **write_keys(tmp_path)) as suite,
    ):
        chats = await create_data(suite)
        entries = await export(suite, "ada")
        assert list(entries)[-1] == "manifest.json"
        manifest = json.loads(entries.pop("manifest.json"))
        assert (manifest["user"], manifest["tenant"], manifest["format"]) == ("ada", "mill", 1)
        assert {entry["name"]: (entry["sizeBytes"], entry["sha256"]) for entry in manifest["entries"]} == {
            name: (len(data), hashlib.sha256(data).hexdigest()) for name, data in entries.items()
        }
        log = (tmp_path / "data" / "chats" / f"{chats['ada']}.json").read_bytes()
        assert entries[f"chats/{chats['ada']}.json"] == log
        assert MARK.encode() in entries[f"files/{chats['ada']}/outputs/n.txt"]
        status, _ = await call(suite, "bob", "GET", "/api/data/export", user="ada")
        assert status == 403
        # On the command line, as an operator.
        environment = os.environ | {"HEADRACE_TOKEN": KEYS["op"]}
        for arguments in (
            ("data", "export", "--user", "ada", "--output", str(tmp_path / "ada.tar")),
            ("data", "hold", "--user", "ada", "--reason", "matter 1"),
        ):
            process = await asyncio.create_subprocess_exec(*COMMAND, *arguments, "--url", suite.url, env=environment)
            assert await process.wait() == 0
        with tarfile.open(tmp_path / "ada.tar") as archive:
            assert archive.getnames()[-1] == "manifest.json"
        status, answer = await call(suite, "op", "POST", "/api/data/erase", user="ada")
        assert (status, answer["error"]["code"]) == (400, "HELD")


MOMENTS = ("asked", "runs ended", "a chat gone", "all chats gone", "files gone")
"""The moments at which the suite is killed, as seen in its storage."""


@dataclass(frozen=True)
class Place:
    """Where the suite stores chats: in a folder, or in a database of a server of its own."""

    data: Path
    postgres: Server | None
    url: str = ""

    @property
    def env(self) -> dict[str, str]:
        return {"HEADRACE_DATABASE_URL": self.url} | AT_ONCE if self.url else {}

    async def has_come(self, moment: str, chats: list[str], live: str) -> bool:
        there = {chat_id: log for chat_id in chats if (log := await self._read_log(chat_id))}
        match moment:
            case "asked":
                return True
            case "runs ended":
                return live not in there or b'"state":"cancelled"' in there[live]
            case "a chat gone":
                return len(there) < len(chats)
            case "all chats gone":
                return not there
            case _:
                return not any((self.data / "workspaces" / chat_id).exists() for chat_id in chats)

    async def find_mark(self) -> list[str]:
        """Return the files that contain the mark, except a database's write-ahead log."""
        found = find_mark(self.data)
        if self.postgres is not None:
            await self._fetch("CHECKPOINT")
            found += find_mark(self.postgres.folder / "data" / "base")
        return found

    async def _read_log(self, chat_id: str) -> bytes:
        if self.postgres is None:
            with suppress(FileNotFoundError):
                return (self.data / "chats" / f"{chat_id}.json").read_bytes()
            return b""
        query = "SELECT data FROM lines JOIN chats ON chats.id = chat WHERE chat_id = $1"
        return b"".join(row[0] for row in await self._fetch(query, chat_id))

    async def _fetch(self, statement: str, *values: str) -> list[Any]:
        connection = await asyncpg.connect(self.url)
        try:
            return await connection.fetch(statement, *values)
        finally:
            await connection.close()


@pytest.fixture(params=["files", pytest.param("postgres", marks=[needs_postgres, pytest.mark.nightly])])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Place]:
    if request.param == "files":
        yield Place(tmp_path / "data", None)
        return
    with postgresql.running(*FAST) as server:
        yield Place(tmp_path / "data", server, server.new_database())


@pytest.mark.parametrize("moment", check_first(MOMENTS))
async def test_an_erasure_interrupted_by_a_kill_continues_at_the_next_start(
    tmp_path: Path, place: Place, moment: str
) -> None:
    env, data = write_keys(tmp_path) | place.env, place.data
    async with asyncio.timeout(600), simulator(STEPS) as sim:
        async with running(tmp_path / "config", data, sim, **env) as suite:
            chats = await create_data(suite)
            live = await ask(suite, "ada", f"stall {MARK}", until="content.delta")
            before = await export(suite, "bob")
            status, answer = await call(suite, "op", "POST", "/api/data/erase", user="ada", reason="ticket 7")
            assert status == 200, answer
            erasure_id = answer["data"]["erasureId"]
            status, refused = await call(suite, "ada", "POST", "/api/facts", text="more")
            assert (status, refused["error"]["code"]) == (400, "ERASING")
            with aiohttp.MultipartWriter("form-data") as form:
                form.append(b"more").set_content_disposition("form-data", name="file", filename="n.txt")
            async with suite.http.post(f"{suite.url}/api/upload", data=form, headers=auth_header("ada")) as response:
                assert (response.status, (await response.json())["error"]["code"]) == (400, "ERASING")
            while not await place.has_come(moment, [chats["ada"], live], live):
                await asyncio.sleep(0.001)
            services = suite.services()
            assert await suite.stop(signal.SIGKILL) == -signal.SIGKILL
            await wait_for_exit(services)
        async with running(tmp_path / "config", data, sim, **env) as suite:
            receipt = await wait_until_done(suite, erasure_id)
            counts = {item["name"]: item["count"] for item in receipt["erased"]}
            assert (counts["chats"], counts["facts"]) == (2, 1)
            assert not await place.find_mark()
            assert _without_times(await export(suite, "bob")) == _without_times(before)
            _, listed = await call(suite, "ada", "GET", "/api/chats")
            assert listed["data"] == []
            await ask(suite, "bob", "and again", chatId=chats["bob"])
        assert not await place.find_mark()


@pytest.mark.nightly
async def test_logs_metrics_and_traces_have_nothing_of_an_erased_user(tmp_path: Path) -> None:
    """Checks metrics, traces as a collector gets them, and the logs of all services, which are in the data folder."""
    data, metrics = tmp_path / "data", f"127.0.0.1:{find_free_port()}"
    async with asyncio.timeout(600), simulator(STEPS) as sim, collector() as traces:
        env = write_keys(tmp_path) | {
            "OTEL_EXPORTER_OTLP_ENDPOINT": traces.endpoint,
            "OTEL_BSP_SCHEDULE_DELAY": "50",
            "HEADRACE_FACADE_METRICS_LISTEN": metrics,
        }
        async with running(tmp_path / "config", data, sim, **env) as suite:
            await create_data(suite)
            _, answer = await call(suite, "op", "POST", "/api/data/erase", user="ada")
            await wait_until_done(suite, answer["data"]["erasureId"])
            async with suite.http.get(f"http://{metrics}/metrics") as response:
                metrics_text = await response.text()
            assert "headrace_" in metrics_text
            assert MARK not in metrics_text
        assert list((data / "logs").iterdir())
        assert not find_mark(data)
        assert traces.named("headrace.v1.AgentService/Query")
        assert not [span.name for span in traces.spans if MARK.encode() in span.said]


def _without_times(entries: dict[str, bytes]) -> dict[str, bytes]:
    return {name: data for name, data in entries.items() if name != "manifest.json"}
