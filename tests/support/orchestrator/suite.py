"""A real orchestrator over sockets, with a real memory and a scripted LlmService and ToolService."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from headrace.client import Client
from services.memory.storage.engine import Engine
from services.memory.storage.files.disk import Disk
from services.memory.storage.files.engine import open_files
from services.memory.storage.postgres.connection.pool import Limits
from services.memory.storage.postgres.engine import open_postgres
from services.orchestrator.config import Config
from services.runtime.process.config import ServerSettings
from tests.support.memory.engines import Files, Tables
from tests.support.memory.serving import CONNECTIONS_MAX, STATEMENT_TIMEOUT_S
from tests.support.orchestrator.events import as_json
from tests.support.orchestrator.scripted_llm import ScriptedLlm
from tests.support.orchestrator.scripted_tools import ScriptedTools
from tests.support.orchestrator.watched_memory import WatchedMemory
from tests.support.order import Event, check_order

ANYWHERE = ServerSettings(listen="127.0.0.1:0", drain_s=0.3)

NO_DRAIN = ServerSettings(listen="127.0.0.1:0", drain_s=0.0)

SCHEDULE_LOOK_S = ERASURES_LOOK_S = 0.2

PARK_AFTER_S = 5.0

TEST_TIMEOUT_S = 600.0
"""Ends what hangs; some tests start the orchestrator a dozen times, slowly on a busy machine."""

MODEL = {"providerKey": "scripted", "model": "m"}

REACT = {"mode": "REACT", "modelConfig": MODEL, "toolConfig": {"backends": ["look", "slow"]}, "react": {}}

ONESHOT = {"mode": "ONESHOT", "modelConfig": MODEL, "plain": {}}


@dataclass
class Suite:
    """A running orchestrator and what it talks to."""

    client: Client
    memory: WatchedMemory
    llm: ScriptedLlm
    tools: ScriptedTools
    agents: Path
    stop: Callable[[], Awaitable[None]]
    """Stops the orchestrator as SIGTERM does."""
    kept: Files | Tables
    """Where memory keeps the chats."""
    config: Config = field(default_factory=Config)
    """Of the orchestrator; another one with it is the same owner."""
    address: str = ""
    chat_id: str = ""
    run_ids: list[str] = field(default_factory=list[str])

    async def ask(self, message: str = "hello", agent: str = "react", **fields: Any) -> list[Event]:
        """A whole run in the suite's one chat, its order checked."""
        if self.chat_id:
            fields = {"chat_id": self.chat_id} | fields
        async with self.client.ask(message, agent_key=agent, **fields) as deltas:
            events = [as_json(delta) async for delta in deltas]
        check_order(events)
        self.chat_id = next(event["chatId"] for event in events if event["type"] == "run.start")
        self.run_ids.append(events[-1]["runId"])
        return events


Serve: TypeAlias = Callable[..., AbstractAsyncContextManager[Suite]]


@asynccontextmanager
async def open_store(kept: Files | Tables) -> AsyncGenerator[Engine]:
    if isinstance(kept, Tables):
        async with open_postgres(kept.url, Limits(CONNECTIONS_MAX, STATEMENT_TIMEOUT_S)) as engine:
            yield engine
    else:
        with closing(Disk(kept.folder)) as disk:
            async with open_files(disk) as engine:
                yield engine
