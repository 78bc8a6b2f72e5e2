"""Encrypted stores on both engines, what is written to them, and their bytes as a thief of the disk sees them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.postgresql import Server
from headrace.errors import KeyUnavailable
from headrace.v1 import agent_pb2, memory_pb2
from services.memory.encryption.data_keys import DataKeys
from services.memory.encryption.keyring import Keyring
from services.memory.encryption.master_keys import FileMasterKeys, MasterKeys, OpenKeys
from services.memory.storage.files.data_keys import FOLDER
from services.runtime.auth.identity import Identity, acting_as
from tests.support.memory.engines import MASTER_KEYS, Files, Tables, open_keys
from tests.support.memory.gates import granting
from tests.support.memory.gates import opening as opening_gate
from tests.support.memory.messages import call, content, image, reasoning, result, user
from tests.support.memory.writing import Memory, event_line, new_id, query_line, run_line, step_line
from tests.support.postgresql import connected

SCOPES = frozenset({"ask", "answer", "publish"})
ADA, BOB = Identity("acme", "ada", scopes=SCOPES), Identity("bolt", "bob", scopes=SCOPES)


def opening(masters: MasterKeys = MASTER_KEYS, *, encrypts: bool = True) -> OpenKeys:
    def open_them(stored: DataKeys) -> Keyring:
        keys = Keyring(masters, stored, encrypts=encrypts)
        keys.refresh()
        return keys

    return open_them


OTHER_MASTER_KEYS = FileMasterKeys({"test": b"another key of the same name ...", "more": b"m" * 32})


@dataclass(frozen=True, slots=True)
class WithoutTenant:
    """Master keys that have lost those of one tenant."""

    lost: str

    def wrap(self, tenant: str, key: bytes) -> bytes:
        return MASTER_KEYS.wrap(tenant, key)

    def unwrap(self, tenant: str, wrapped: bytes) -> bytes:
        if tenant == self.lost:
            raise KeyUnavailable("it is gone")
        return MASTER_KEYS.unwrap(tenant, wrapped)


@dataclass(frozen=True, slots=True)
class Store:
    """One encrypted store, which may be opened with other keys."""

    kept: Files | Tables
    postgres: Server | None
    open_keys: OpenKeys = open_keys

    def with_keys(self, open_keys: OpenKeys) -> Store:
        return replace(self, kept=replace(self.kept, open_keys=open_keys), open_keys=open_keys)

    def memory(self, **options: Any) -> AbstractAsyncContextManager[Memory]:
        return self.kept.memory(**options)

    async def find_bytes(self, marker: bytes) -> list[str]:
        """Return the files that contain a marker, of the folder or of the database."""
        folder = self.kept.folder if isinstance(self.kept, Files) else None
        if folder is None:
            assert self.postgres is not None
            await self.run("CHECKPOINT")
            folder = self.postgres.folder / "data"
        return [str(path.relative_to(folder)) for path, data in _read_files(folder) if marker in data]

    async def run(self, statement: str, *values: Any) -> list[Any]:
        assert isinstance(self.kept, Tables)
        async with connected(self.kept.url) as connection:
            return await connection.fetch(statement, *values)

    async def read_lines(self, chat_id: str) -> list[bytes]:
        """Return the lines of a chat as they are stored."""
        if isinstance(self.kept, Files):
            return (self.kept.folder / f"{chat_id}.json").read_bytes().splitlines()
        query = "SELECT data FROM lines JOIN chats ON chats.id = chat WHERE chat_id = $1 ORDER BY n"
        return [row[0] for row in await self.run(query, chat_id)]

    async def write_line(self, chat_id: str, n: int, line: bytes) -> None:
        """Replace a line; no service may be running."""
        if isinstance(self.kept, Files):
            path = self.kept.folder / f"{chat_id}.json"
            lines = path.read_bytes().splitlines()
            lines[n - 1] = line
            path.write_bytes(b"".join(text + b"\n" for text in lines))
        else:
            query = "UPDATE lines SET data = $3 FROM chats WHERE chats.id = chat AND chat_id = $1 AND n = $2"
            await self.run(query, chat_id, n, line)

    async def delete_keys(self, tenant: str) -> None:
        """Delete a tenant's data keys."""
        if isinstance(self.kept, Files):
            for path in (self.kept.folder / FOLDER).iterdir():
                if f'"tenant":"{tenant}"' in path.read_text():
                    path.unlink()
        else:
            await self.run("DELETE FROM data_keys WHERE tenant = $1", tenant)


def _read_files(folder: Path) -> Iterator[tuple[Path, bytes]]:
    for path in sorted(folder.rglob("*")):
        # Another process's tests may have the server delete what is theirs.
        with suppress(FileNotFoundError):
            if path.is_file() and path.suffix != ".pid":
                yield path, path.read_bytes()


async def write_everything(memory: Memory, marker: str, who: Identity = ADA) -> str:
    """Write the marker into each kind of content, and return the chat's id."""
    with acting_as(who):
        chat_id, run_id = new_id(), new_id()
        picture = user(marker, image(data=marker.encode() * 40, mime_type="image/png"))
        await memory.append(chat_id, run_id, query_line(f"{marker} and what follows", params=f'{{"key":"{marker}"}}'))
        await memory.append(
            chat_id,
            run_id,
            step_line(picture),
            step_line(reasoning(marker), content(marker), call("call_1", f'{{"about":"{marker}"}}')),
            step_line(result("call_1", marker)),
        )
        await memory.append(chat_id, run_id, event_line(seq=7, timestamp=1, plan_create=_plan(marker)))
        await memory.append(chat_id, run_id, opening_gate("approval_1", reason=marker))
        await memory.append(chat_id, run_id, granting("g_1", grounds=[marker]))
        await memory.append(chat_id, run_id, memory_pb2.LogLine(insight=memory_pb2.NoteLine(text=marker)))
        await memory.update_state(chat_id, 0, f'{{"note":"{marker}"}}', run_id=run_id)
        await memory.put_blob(chat_id, marker.encode() * 2)
        await memory.append(chat_id, run_id, run_line(output=f'{{"answer":"{marker}"}}'))
        await memory.call("UpdateChat", chat_id=chat_id, title=f"About {marker}")
        await memory.remember(f"likes {marker}", topic=f"{marker} topic")
        await memory.call("CreateSchedule", agent_key="guide", message=marker, name=marker, cron="0 9 * * *")
        definition = f'{{"prompt":"{marker}"}}'
        await memory.call("PutAgentVersion", agent_key="guide", definition=definition)
        await memory.call("PutAgentDefinition", agent_key="guide", definition=definition, version=1)
        await _write_webhooks(memory, marker, run_id, who)
        await memory.fork(chat_id)
        return chat_id


async def _write_webhooks(memory: Memory, marker: str, run_id: str, who: Identity) -> None:
    url = f"https://{marker.replace(' ', '-').replace(chr(39), '')}.example.com/"
    admin = replace(who, scopes=who.scopes | {"admin"})
    created = await memory.call_as(admin, "CreateWebhook", url=url, name=marker)
    assert created.secret.startswith("whsec_")
    secrets = {"token": marker.replace(" ", "-"), "auth_scheme": "Bearer", "auth_credentials": marker}
    await memory.call_as(who, "PutRunWebhook", run_id=run_id, config_id="one", url=url, **secrets)


async def read_agents(memory: Memory) -> list[str]:
    """Return the definitions of all tenants' agents, as an orchestrator reads them."""
    reply = await memory.call_as(None, "ReadAgentChanges")
    return [agent.definition for agent in reply.agents]


def _plan(marker: str) -> agent_pb2.PlanCreate:
    task = agent_pb2.Task(task_id="t1", description=marker)
    return agent_pb2.PlanCreate(plan_id="p1", plan=[task])


async def read_everything(memory: Memory, chat_id: str, word: str, who: Identity = ADA) -> dict[str, Any]:
    """Return everything that write_everything has written, as callers read it."""
    with acting_as(who):
        chat = await memory.chat(chat_id=chat_id)
        facts = await memory.list_facts()
        schedules = (await memory.call("ListSchedules")).schedules
        version = await memory.call("ReadAgentVersion", agent_key="guide", version=1)
        admin = replace(who, scopes=who.scopes | {"admin"})
        hooks = await memory.call_as(admin, "ListWebhooks")
        return {
            "webhooks": [(hook.name, hook.url) for hook in hooks.webhooks],
            "chat": chat.SerializeToString(deterministic=True),
            "chats": sorted(one.title for one in (await memory.chats()).chats),
            "hits": sorted(hit.excerpt for hit in await memory.search(word)),
            "grants": [grant.grounds[0] for grant in (await memory.grants()).grants],
            "state": await memory.state(chat_id),
            "facts": [(fact.text, fact.topic) for fact in facts],
            "schedules": [(one.name, one.message) for one in schedules],
            "version": version.definition,
            "agents": await read_agents(memory),
        }
