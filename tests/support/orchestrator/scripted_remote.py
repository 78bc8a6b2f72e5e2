"""A remote agent that speaks A2A 1.0 over real sockets and follows a test's script.

Its tasks continue without readers. Each message starts a play, a list of steps; the last play is repeated.
"""

import asyncio
import json
import uuid
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from aiohttp import web

Step: TypeAlias = str | float | dict[str, Any] | asyncio.Event | bytes
"""A piece of the answer, seconds to wait, a complete event, an asyncio.Event to wait for, or raw bytes."""

CUT = b""
"""Cuts the connection that started the task; the task continues."""


def status(state: str, text: str = "", **fields: Any) -> dict[str, Any]:
    task_status: dict[str, Any] = {"state": f"TASK_STATE_{state}", "timestamp": "2026-11-26T05:00:00.123Z"}
    if text or fields:
        message = {"messageId": fields.pop("id", uuid.uuid4().hex), "role": "ROLE_AGENT", "parts": [{"text": text}]}
        task_status["message"] = message | fields
    return {"statusUpdate": {"status": task_status}}


def artifact(text: str, *, append: bool = False, name: str = "answer", parts: Any = None) -> dict[str, Any]:
    given = {"artifactId": name, "parts": parts or [{"text": text}]}
    return {"artifactUpdate": {"artifact": given, "append": append}}


DONE = status("COMPLETED")


@dataclass
class Task:
    id: str
    context_id: str
    events: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    artifacts: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    status: dict[str, Any] = field(default_factory=lambda: {"state": "TASK_STATE_SUBMITTED"})
    history: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    canceled: bool = False
    play: asyncio.Task[None] | None = None

    @property
    def is_open(self) -> bool:
        return self.status["state"].removeprefix("TASK_STATE_") in ("SUBMITTED", "WORKING")

    def note(self, event: dict[str, Any]) -> None:
        for kind, value in event.items():
            value |= {"taskId": self.id, "contextId": self.context_id}
            if kind == "statusUpdate":
                self.status = value["status"]
            elif kind == "artifactUpdate":
                given = value["artifact"]
                known = self.artifacts.get(given["artifactId"])
                parts = [*known["parts"], *given["parts"]] if known and value["append"] else given["parts"]
                self.artifacts[given["artifactId"]] = given | {"parts": parts}
        self.events.append(event)
        self.tell()

    def tell(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()

    def show(self, history: bool = False) -> dict[str, Any]:
        task = {"id": self.id, "contextId": self.context_id, "status": self.status}
        task |= {"artifacts": [*self.artifacts.values()]} if self.artifacts else {}
        return task | ({"history": self.history} if history else {})


class ScriptedRemote:
    def __init__(self) -> None:
        self.url = ""
        self.card: dict[str, Any] = {}
        self.token = ""
        """The required bearer token; empty: none is required."""
        self.plays: list[list[Step]] = [["one ", "two ", "three", DONE]]
        self.replies: list[dict[str, Any] | bytes] = []
        """Replies to messages instead of plays; bytes are sent unchanged."""
        self.hold: asyncio.Event | None = None
        """If set, messages are accepted, but answered only after this event."""
        self.drops = 0
        """Number of next messages that are accepted but whose connections are cut before any reply."""
        self.loses = 0
        """Number of next messages that are lost: their connections are cut before they are accepted."""
        self.tasks: dict[str, Task] = {}
        self.messages: list[dict[str, Any]] = []
        self.calls: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.redirects: dict[str, str] = {}
        """Redirect targets by path."""
        self.knows_contexts = True
        """Whether it accepts messages in an existing context."""
        self.knows_ids = False
        """Whether a repeated messageId is treated as the same message."""
        self.canceled = asyncio.Event()
        self.tells_first = True
        """Whether streams start with the task."""

    async def serve_card(self, request: web.Request) -> web.Response:
        self.headers.append(dict(request.headers))
        if "/card" in self.redirects:
            return web.Response(status=302, headers={"Location": self.redirects["/card"]})
        return web.json_response(self.card)

    async def serve_rpc(self, request: web.Request) -> web.StreamResponse:
        self.headers.append(dict(request.headers))
        if "/rpc" in self.redirects:
            return web.Response(status=307, headers={"Location": self.redirects["/rpc"]})
        if self.token and request.headers.get("Authorization") != f"Bearer {self.token}":
            return web.Response(status=401)
        call = await request.json()
        return await self._answer(request, call["method"], call["params"], call["id"])

    async def serve_rest(self, request: web.Request) -> web.StreamResponse:
        self.headers.append(dict(request.headers))
        tail = request.match_info["tail"]
        if tail in ("message:send", "message:stream"):
            method = "SendMessage" if tail == "message:send" else "SendStreamingMessage"
            return await self._answer(request, method, await request.json(), None)
        task_id, _, verb = tail.removeprefix("tasks/").partition(":")
        method = {"": "GetTask", "cancel": "CancelTask", "subscribe": "SubscribeToTask"}[verb]
        return await self._answer(request, method, {"id": task_id, **request.query}, None)

    async def _answer(self, request: web.Request, method: str, params: dict[str, Any], rpc_id: Any) -> Any:
        self.calls.append(method)

        def wrap(result: dict[str, Any]) -> dict[str, Any]:
            return result if rpc_id is None else {"jsonrpc": "2.0", "id": rpc_id, "result": result}

        def refuse(code: int, reason: str, message: str) -> web.Response:
            info = [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason}]
            if rpc_id is None:
                return web.json_response({"error": {"code": 400, "message": message, "details": info}}, status=400)
            error = {"code": code, "message": message, "data": info}
            return web.json_response({"jsonrpc": "2.0", "id": rpc_id, "error": error})

        if method.startswith("Send"):
            message = params["message"]
            if self.loses:
                self.loses -= 1
                return self._cut(request)
            known = [earlier for earlier in self.messages if earlier["messageId"] == message["messageId"]]
            self.messages.append(message)
            if message.get("contextId") and not self.knows_contexts:
                return refuse(-32602, "INVALID_PARAMS", "no such context")
            if self.hold is not None:
                await self.hold.wait()
            if self.replies:
                reply = self.replies.pop(0)
                if isinstance(reply, bytes):
                    return web.Response(body=reply, content_type="application/json")
                return web.json_response(wrap(reply))
            task = self._take(message, is_known=bool(known) and self.knows_ids)
            if self.drops:
                self.drops -= 1
                return self._cut(request)
            if method == "SendMessage":
                return web.json_response(wrap({"task": task.show()}))
            return await self._stream(request, task, wrap, len(task.events) if task.history[:-1] else 0)
        task = self.tasks.get(params["id"])
        if task is None:
            return refuse(-32001, "TASK_NOT_FOUND", "no such task")
        if method == "GetTask":
            return web.json_response(wrap(task.show(history=int(params.get("historyLength", 0)) > 0)))
        if method == "CancelTask":
            task.canceled = True
            if task.play is not None:
                task.play.cancel()
            task.note(status("CANCELED"))
            self.canceled.set()
            return web.json_response(wrap(task.show()))
        if task.status["state"] in ("TASK_STATE_COMPLETED", "TASK_STATE_FAILED"):
            return refuse(-32004, "UNSUPPORTED_OPERATION", "the task has ended")
        return await self._stream(request, task, wrap, len(task.events))

    def _take(self, message: dict[str, Any], *, is_known: bool) -> Task:
        if is_known:
            return next(task for task in self.tasks.values() if message in task.history)
        task = self.tasks.get(message.get("taskId", ""))
        if task is None:
            task = Task(str(uuid.uuid4()), message.get("contextId") or str(uuid.uuid4()))
            self.tasks[task.id] = task
        task.history.append(message)
        task.status = {"state": "TASK_STATE_WORKING"}
        play = self.plays.pop(0) if len(self.plays) > 1 else self.plays[0]
        task.play = asyncio.create_task(self._play(task, play))
        return task

    async def _play(self, task: Task, play: list[Step]) -> None:
        has_text = bool(task.artifacts)
        for step in play:
            match step:
                case str():
                    task.note(artifact(step, append=has_text))
                    has_text = True
                case dict():
                    task.note(json.loads(json.dumps(step)))
                case bytes():
                    task.events.append({"raw": step})
                    task.tell()
                case asyncio.Event():
                    await step.wait()
                case _:
                    await asyncio.sleep(float(step))

    async def _stream(self, request: web.Request, task: Task, wrap: Any, at: int) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        is_first = request.path.endswith("stream") or self.calls[-1].startswith("Send")
        if self.tells_first or not is_first:
            await self._write(response, wrap({"task": task.show()}))
        while True:
            changed = task.changed
            while at < len(task.events):
                event = task.events[at]
                at += 1
                if "raw" in event:
                    if not is_first:
                        continue
                    if not event["raw"]:
                        self._cut(request)
                        return response
                    await response.write(event["raw"])
                else:
                    await self._write(response, wrap(event))
            if not task.is_open:
                return response
            await changed.wait()

    async def _write(self, response: web.StreamResponse, value: dict[str, Any]) -> None:
        await response.write(b"data: " + json.dumps(value).encode() + b"\n\n")

    def _cut(self, request: web.Request) -> web.Response:
        if request.transport is not None:
            request.transport.abort()
        return web.Response()


@asynccontextmanager
async def scripted_remote(binding: str = "JSONRPC", *, streaming: bool = True) -> AsyncGenerator[ScriptedRemote]:
    remote = ScriptedRemote()
    app = web.Application()
    app.router.add_get("/card", remote.serve_card)
    app.router.add_post("/rpc", remote.serve_rpc)
    app.router.add_route("*", "/rest/{tail:.+}", remote.serve_rest)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    remote.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    path = "/rpc" if binding == "JSONRPC" else "/rest"
    served = {"url": remote.url + path, "protocolBinding": binding, "protocolVersion": "1.0"}
    remote.card = {"name": "scripted", "supportedInterfaces": [served], "capabilities": {"streaming": streaming}}
    try:
        yield remote
    finally:
        for task in remote.tasks.values():
            if task.play is not None:
                task.play.cancel()
        await runner.cleanup()
