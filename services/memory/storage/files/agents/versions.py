"""Versions of agents in a folder. Everything but FileAgentVersions blocks.

`agents/versions/<SHA-256 of tenant and key>.<number>` holds a line of JSON, which says whose version it is, and the
definition behind it. The lines are kept in memory, the definitions are not.
"""

from __future__ import annotations

import asyncio
import hashlib
from threading import Lock
from typing import TYPE_CHECKING

import msgspec
import structlog

from headrace.errors import LogDamaged, QuotaExceeded
from services.memory.encryption.keyring import NO_KEYS
from services.memory.storage.encrypted.blobs import decrypt_definition, encrypt_definition
from services.memory.storage.records.agents import SHARED, VERSIONS_MAX, AgentVersion, hash_definition
from services.runtime.clock import now_ms
from services.runtime.files.disk import make_folder, write_whole

if TYPE_CHECKING:
    from pathlib import Path

    from services.memory.encryption.keyring import Keyring
    from services.memory.storage.files.disk_room import DiskRoom

log = structlog.get_logger()


class VersionFolder:
    """The versions of a folder, which several threads may use."""

    def __init__(self, folder: Path, room: DiskRoom, keys: Keyring = NO_KEYS) -> None:
        self._folder = folder
        self._keys = keys
        self._room = room
        self._lock = Lock()
        """Held while a version gets its number."""
        self._by_agent: dict[tuple[str, str], dict[int, AgentVersion]] = {}
        self._floors: dict[str, int] = {}
        """Highest numbers by the first part of file names, of files that cannot be read too."""
        for path in sorted(folder.glob("*")) if folder.exists() else ():
            self._read_line(path)

    def put(
        self, tenant: str, agent_key: str, definition: bytes, imported: AgentVersion | None = None
    ) -> tuple[AgentVersion, bool]:
        """Keep a definition, with the number and time of `imported` where that number is free; return whether it is
        new."""
        digest = hash_definition(definition)
        with self._lock:
            versions = self._by_agent.setdefault((tenant, agent_key), {})
            if same := find_by_hash(versions, digest):
                return same, False
            if len(versions) >= VERSIONS_MAX:
                raise QuotaExceeded(f"agent {agent_key!r} has had {VERSIONS_MAX} versions; give it another key")
            last = self._floors.get(_name_agent(tenant, agent_key), 0)
            added = AgentVersion(tenant, agent_key, max(last, *versions, 0) + 1, digest, now_ms())
            if imported is not None and imported.version not in versions:
                added = msgspec.structs.replace(imported, hash=digest)
            with self._room.writing(agent_key):
                make_folder(self._folder)
                write_whole(self._get_path(added), self._encode(added, definition))
            versions[added.version] = added
            return added, True

    def list_all(self) -> list[AgentVersion]:
        with self._lock:
            found = [version for versions in self._by_agent.values() for version in versions.values()]
        return sorted(found, key=lambda version: (version.tenant, version.agent_key, version.version))

    def list_versions(self, tenant: str, agent_key: str) -> dict[int, AgentVersion]:
        with self._lock:
            return dict(self._by_agent.get((tenant, agent_key), {}))

    def read(self, version: AgentVersion) -> bytes:
        """Return the definition. Raises LogDamaged where the file has another."""
        try:
            stored = self._get_path(version).read_bytes().partition(b"\n")[2]
        except FileNotFoundError:
            stored = b""
        definition = decrypt_definition(version.tenant, version.agent_key, version.hash, stored, self._keys)
        if hash_definition(definition) != version.hash:
            raise LogDamaged(f"version {version.version} of agent {version.agent_key!r} is damaged in the store")
        return definition

    def delete_all_of(self, tenant: str) -> int:
        """Delete the versions of a tenant's agents, and return how many there were."""
        with self._lock:
            gone = [version for (of, _), found in self._by_agent.items() if of == tenant for version in found.values()]
            for version in gone:
                self._get_path(version).unlink(missing_ok=True)
                self._by_agent.pop((tenant, version.agent_key), None)
        return len(gone)

    def rewrite(self, version: AgentVersion) -> bool:
        """Write a version as it would be written now, if it is not so; return whether it was. Raises LogDamaged,
        KeyUnavailable, Overloaded."""
        with self._lock:
            stored = self._get_path(version).read_bytes().partition(b"\n")[2]
            if version.tenant == SHARED or self._keys.is_current(version.tenant, stored):
                return False
            data = self._encode(version, self.read(version))
            with self._room.writing(version.agent_key):
                write_whole(self._get_path(version), data)
            return True

    def _encode(self, version: AgentVersion, definition: bytes) -> bytes:
        stored = encrypt_definition(version.tenant, version.agent_key, version.hash, definition, self._keys)
        return msgspec.json.encode(version) + b"\n" + stored

    def _read_line(self, path: Path) -> None:
        if path.name.startswith("."):
            path.unlink()  # whoever began to write it was killed
            return
        name, _, number = path.name.partition(".")
        self._floors[name] = max(self._floors.get(name, 0), int(number) if number.isdecimal() else 0)
        try:
            with path.open("rb") as file:
                version = msgspec.json.decode(file.readline(), type=AgentVersion)
        except (OSError, ValueError) as error:
            log.error("agent version cannot be read", file=path.name, error=str(error))
            return
        self._by_agent.setdefault((version.tenant, version.agent_key), {})[version.version] = version

    def _get_path(self, version: AgentVersion) -> Path:
        return self._folder / f"{_name_agent(version.tenant, version.agent_key)}.{version.version}"


def _name_agent(tenant: str, agent_key: str) -> str:
    return hashlib.sha256(f"{tenant}\n{agent_key}".encode()).hexdigest()


def find_by_hash(versions: dict[int, AgentVersion], digest: str) -> AgentVersion | None:
    return next((version for version in versions.values() if version.hash == digest), None)


class FileAgentVersions:
    def __init__(self, folder: VersionFolder, keys: Keyring = NO_KEYS) -> None:
        self._folder = folder
        self._keys = keys

    async def put(self, tenant: str, agent_key: str, definition: bytes) -> tuple[AgentVersion, bool]:
        if tenant != SHARED:
            await self._keys.prepare(tenant)
        return await asyncio.to_thread(self._folder.put, tenant, agent_key, definition)

    async def import_version(self, version: AgentVersion, definition: bytes) -> None:
        if version.tenant != SHARED:
            await self._keys.prepare(version.tenant)
        await asyncio.to_thread(self._folder.put, version.tenant, version.agent_key, definition, version)

    async def list_all(self) -> list[AgentVersion]:
        return self._folder.list_all()

    async def find(
        self, tenant: str, agent_key: str, *, version: int = 0, digest: str = ""
    ) -> tuple[AgentVersion, bytes] | None:
        versions = self._folder.list_versions(tenant, agent_key)
        found = versions.get(version) if version else find_by_hash(versions, digest)
        return (found, await asyncio.to_thread(self._folder.read, found)) if found is not None else None

    async def list_before(self, tenant: str, agent_key: str, before: int, count: int) -> list[AgentVersion]:
        versions = self._folder.list_versions(tenant, agent_key)
        return [versions[number] for number in sorted(versions, reverse=True) if number < before][:count]
