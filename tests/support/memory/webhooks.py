"""A store with webhooks, on either engine, and its deliverer."""

import asyncio
import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, TypeAlias

from msgspec import Raw

from services.memory.log.lines import Event as EventLine
from services.memory.log.lines import Query, Run, Stamped
from services.memory.log.messages import Range
from services.memory.storage.engine import Engine
from services.memory.storage.records.webhooks import Delivery, DeliveryQuery, Webhook
from services.memory.webhooks.deliverer import Send, delivering
from services.memory.webhooks.sender import Sender
from services.memory.webhooks.store import WebhookStore
from services.runtime.auth.identity import ALL_SCOPES, Identity
from services.runtime.clock import now_ms
from services.runtime.net.allow_list import parse_allow_list
from tests.support.memory.writing import new_id
from tests.support.webhook_receiver import Receiver, resolve_here

Open: TypeAlias = Callable[[], AbstractAsyncContextManager["Engine"]]

HOUR_MS = 3_600_000
ALLOW = parse_allow_list("hooks.test")
ADA, EVE = Identity("acme", "ada", scopes=ALL_SCOPES), Identity("globex", "eve", scopes=ALL_SCOPES)
URL = "https://hooks.example/in"


def send_to(receiver: Receiver, **sender: Any) -> Send:
    return Sender(ALLOW, resolve_here, send_s=sender.pop("send_s", 60.0), **sender).send


@dataclass(frozen=True)
class Writer:
    """Appends the lines that cause events, for the default tenant."""

    engine: Engine

    async def begin(self, chat_id: str = "", agent_key: str = "guide") -> tuple[str, str]:
        chat_id, run_id = chat_id or new_id(), new_id()
        query = f'{{"message":"a secret","requestId":"{new_id()}","agentKey":"{agent_key}"}}'.encode()
        await self._append(chat_id, Query, run_id=run_id, query=Raw(query))
        return chat_id, run_id

    async def end(self, chat_id: str, run_id: str, state: str = "completed", **fields: Any) -> None:
        await self._append(chat_id, Run, run_id=run_id, state=state, events=Range(9, 9), **fields)

    async def run(self, chat_id: str = "", agent_key: str = "guide") -> str:
        """Have a run begin and end, and return its chat."""
        chat_id, run_id = await self.begin(chat_id, agent_key)
        await self.end(chat_id, run_id, usage=Raw(b'{"inputTokens":10,"outputTokens":4}'))
        return chat_id

    async def open_gate(self, chat_id: str, run_id: str, gate_id: str, wait_ms: int = HOUR_MS) -> None:
        now = now_ms()
        text = (
            f'{{"type":"gate.open","seq":5,"timestamp":{now},"gateId":"{gate_id}","kind":"approval",'
            f'"agentKey":"guide","toolId":"call_1","toolName":"pay","reason":"a secret","expiresAt":{now + wait_ms}}}'
        )
        await self._append(chat_id, EventLine, run_id=run_id, event=Raw(text.encode()))

    async def close_gate(self, chat_id: str, run_id: str, gate_id: str) -> None:
        text = f'{{"type":"gate.close","seq":6,"timestamp":{now_ms()},"gateId":"{gate_id}","state":"answered"}}'
        await self._append(chat_id, EventLine, run_id=run_id, event=Raw(text.encode()))

    async def take_step(self, chat_id: str, run_id: str, gate_id: str, step: str, *to: str) -> None:
        event = {"type": "gate.step", "seq": 6, "timestamp": now_ms(), "gateId": gate_id, "step": step, "to": to}
        await self._append(chat_id, EventLine, run_id=run_id, event=Raw(json.dumps(event).encode()))

    async def _append(self, chat_id: str, kind: type[Stamped], **fields: Any) -> None:
        stamped: dict[str, Any] = {"n": 0, "uuid": new_id(), "chat_id": chat_id, "updated_at": 0, "generation": 0}
        line: Any = kind(**stamped, tenant="default", user="default", **fields)
        await self.engine.chats.append(chat_id, [line], 100)


async def create(engine: Engine, receiver: Receiver, **fields: Any) -> tuple[Webhook, str]:
    return await store_of(engine).create(receiver.url, **fields)


def store_of(engine: Engine) -> WebhookStore:
    return WebhookStore(engine.records.webhooks, ALLOW)


def deliver(engine: Engine, receiver: Receiver, **sender: Any) -> AbstractAsyncContextManager[None]:
    return delivering(engine.records.webhooks, send_to(receiver, **sender), look_s=0.2)


async def list_deliveries(engine: Engine, webhook: Webhook, state: str = "") -> list[Delivery]:
    query = DeliveryQuery("default", webhook.webhook_id, state, 200)
    return (await engine.records.webhooks.list_deliveries(query))[0]


async def wait_for_states(engine: Engine, webhook: Webhook, *states: str) -> list[Delivery]:
    """Wait until the deliveries have these states, in any order; return them, oldest first."""
    async with asyncio.timeout(120):
        while True:
            found = (await list_deliveries(engine, webhook))[::-1]
            if sorted(delivery.state for delivery in found) == sorted(states):
                return found
            await asyncio.sleep(0.02)
