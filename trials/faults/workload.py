"""The fixed workload: uploads, tools of every effect, an image, a second message, a late reader, a list, a
deleted chat.
"""

import asyncio
import base64
import json
import os
import uuid
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from services.simulator.script import parse_script
from services.simulator.server import simulator
from tests.support.order import Event
from tests.support.suite import MODEL, Suite, running
from trials.chaos.asking import AGAIN_S, RETRIABLE, Asked, Asker, Wrong
from trials.faults.control import Faults, loading_faults

PICTURE = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)

COUNT = ["sh", "-c", "mkdir -p outputs; echo x >> outputs/count; echo done"]
TOOLS = ["count", "read_file", "write_file"]

SCRIPT: list[dict[str, Any]] = [
    {
        "match": {"turn": 1, "text": "^go"},
        "steps": [
            {"content": ["Let me ", "see."]},
            {"toolCall": "read_file", "id": "call_1", "arguments": ['{"path":"uploads/notes.txt"}']},
        ],
    },
    {"match": {"turn": 2, "text": "^go"}, "steps": [{"toolCall": "count", "id": "call_2", "arguments": ["{}"]}]},
    {
        "match": {"turn": 3, "text": "^go"},
        "steps": [{"toolCall": "write_file", "id": "call_3", "arguments": ['{"path":"outputs/a.txt","content":"a"}']}],
    },
    {"match": {"text": "^go"}, "steps": [{"content": ["It is ", "done."]}]},
    {"steps": [{"content": "fine"}]},
]


@dataclass
class Work:
    """The client's view of the work."""

    chat_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    deleted: str = field(default_factory=lambda: str(uuid.uuid4()))
    """Id of the chat that the client deleted."""
    runs: list[Asked] = field(default_factory=list[Asked])
    told_again: list[Event] = field(default_factory=list[Event])
    """Events of the first run, as received by a late reader."""
    failures: list[str] = field(default_factory=list[str])
    """Requests that had to be repeated."""
    wrong: list[str] = field(default_factory=list[str])
    """Answers that no service may give."""


@dataclass
class Rig:
    """A suite with system calls that can be made to fail."""

    suite: Suite
    asker: Asker
    http: aiohttp.ClientSession
    faults: Faults

    async def work(self, work: Work) -> None:
        """Do all of the work once."""
        picture = await self._upload(work, "dot.png", PICTURE)
        await self._upload(work, "notes.txt", b"one\ntwo\n")
        await self.ask(work, "go")
        await self.ask(work, "again", references=[picture] if picture else [])
        try:
            work.told_again = await self._repeat(work, lambda: self.asker.folded_again(work.runs[0]))
        except Wrong as error:
            work.wrong.append(f"attach: {error}")
        other = Asked(work.deleted)
        await self.asker.ask(other, "again", "worker")
        work.wrong += [other.wrong] if other.wrong else []
        work.failures += other.failures
        await self._request(work, "GET", "/api/chats")
        await self._request(work, "DELETE", f"/api/chat?chatId={work.deleted}", gone=True)

    async def ask(self, work: Work, message: str, **fields: Any) -> Asked:
        """Run a question in the work's chat to its end."""
        work.runs.append(asked := Asked(work.chat_id, fields=fields))
        await self.asker.ask(asked, message, "worker")
        work.wrong += [asked.wrong] if asked.wrong else []
        work.failures += asked.failures
        return asked

    async def is_ready(self) -> bool:
        """Return whether all services are ready."""
        try:
            return (await self.suite.get("/readyz", all=""))[0] == 200
        except (aiohttp.ClientError, TimeoutError):
            return False

    def count_open_files(self) -> dict[int, int]:
        """Return the number of open files of each service, by process id."""
        return {pid: len(os.listdir(f"/proc/{pid}/fd")) for pid in self.suite.services().values()}

    async def _upload(self, work: Work, name: str, data: bytes) -> Any:
        request_id = str(uuid.uuid4())

        def make_form() -> aiohttp.FormData:
            form = aiohttp.FormData({"chatId": work.chat_id, "requestId": request_id})
            form.add_field("file", data, filename=name)
            return form

        answer = await self._request(work, "POST", "/api/upload", make_form)
        return answer and answer["data"]

    async def _request(self, work: Work, method: str, path: str, form: Any = None, *, gone: bool = False) -> Any:
        """Return the answer, repeating the request until there is one; None after an illegal answer.

        With `gone`, 404 counts as an answer: after a lost answer, the client repeats a request that may be repeated.
        """

        async def send() -> Any:
            async with self.http.request(method, self.suite.url + path, data=form and form()) as response:
                if response.status == 200 or (gone and response.status == 404):
                    return await response.json()
                description = f"{method} {path.partition('?')[0]}: {response.status} {await response.text()}"
                raise (aiohttp.ClientError if response.status in RETRIABLE else Wrong)(description)

        try:
            return await self._repeat(work, send)
        except Wrong as error:
            work.wrong.append(str(error))
            return None

    async def _repeat(self, work: Work, send: Any) -> Any:
        while True:
            try:
                return await send()
            except (aiohttp.ClientError, TimeoutError) as error:
                work.failures.append(repr(error))
                await asyncio.sleep(AGAIN_S)


@asynccontextmanager
async def running_rig(folder: Path) -> AsyncGenerator[Rig]:
    """Start a suite of real processes over `folder`, and wait until it is ready and warm, without faults."""
    config, data = folder / "config", folder / "data"
    write_config(config)
    data.mkdir()
    timeout = aiohttp.ClientTimeout(total=60, sock_read=40)
    # A new connection per request, so that the facade has to accept them.
    connector = aiohttp.TCPConnector(force_close=True)
    with loading_faults(folder, data, config) as faults:
        async with (
            simulator() as sim,
            running(config, data, sim, form="--split", **faults.environment) as suite,
            aiohttp.ClientSession(timeout=timeout, connector=connector) as http,
        ):
            sim.rules = parse_script(SCRIPT)
            rig = Rig(suite, Asker(http, [suite.url]), http, faults)
            await rig.work(Work())
            yield rig


def write_config(config: Path) -> None:
    for name in ("agents", "tools"):
        (config / name).mkdir(parents=True)
    schema = {"type": "object", "properties": {}}
    tool = {"type": "function", "name": "count", "description": "Counts", "parameters": schema}
    tool |= {"command": COUNT, "effect": "once"}
    (config / "tools" / "count.backend").write_text(json.dumps({"tools": [tool]}))
    agent = {"mode": "REACT", "modelConfig": MODEL, "toolConfig": {"backends": TOOLS}, "react": {}}
    (config / "agents" / "worker.json").write_text(json.dumps(agent))
