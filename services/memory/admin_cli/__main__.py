"""`python -m services.memory.admin_cli`: export, import, prune, reindex and verify chats.

A folder must not belong to a running service, except for verification; a database may be in use.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from headrace.errors import HeadraceError, InvalidRequest, NotFound
from services.memory.admin_cli import encryption, verify
from services.memory.admin_cli.verify import print_line
from services.memory.config import Config
from services.memory.data import retention
from services.memory.data.retention import SameForAll
from services.memory.engines import open_engine
from services.memory.importing import chat_files
from services.memory.log.recovery import read_chat
from services.memory.storage.engine import Engine
from services.memory.storage.files.disk import Disk
from services.memory.storage.files.indexing.index_recovery import INDEX_NAME, create_database, open_database
from services.memory.storage.records import agent_versions, user_facts
from services.runtime.files.disk import UMASK
from services.runtime.process import config as settings
from services.runtime.process import logs
from services.runtime.rpc.field_rules import is_uuid

if TYPE_CHECKING:
    from services.memory.storage.records.kind import Records
    from services.memory.storage.s3.bucket import Bucket

T = TypeVar("T")

FACTS, VERSIONS = "facts.jsonl", "agent_versions.jsonl"

_AGE = re.compile(r"([0-9]{1,5})([dhm])")
_DAYS = {"d": 1.0, "h": 1 / 24, "m": 1 / 24 / 60}


def main() -> None:
    os.umask(UMASK)
    arguments = _build_parser().parse_args()
    env = dict(os.environ)
    if arguments.data_dir:
        env |= {"HEADRACE_DATA_DIR": arguments.data_dir, "HEADRACE_DATABASE_URL": ""}
    try:
        config = settings.load_settings(Config, "MEMORY", env)
        logs.configure_logging("WARNING", "memory")
        is_well = asyncio.run(run_command(config, arguments))
    except (settings.ConfigError, chat_files.UnreadableFile, HeadraceError, OSError) as error:
        sys.exit(str(error))
    sys.exit(0 if is_well else 1)


async def run_command(config: Config, arguments: argparse.Namespace) -> bool:
    """Run the command; return whether the chats are undamaged."""
    if not config.database_url:
        if not config.logs_dir.exists() and arguments.command != "import":
            raise OSError(f"{config.logs_dir}: there are no chats")
        if arguments.command == "verify":  # without opening the folder, which a service may own
            keys = encryption.open_folder_keys(config)
            async with _opening_bucket(config) as bucket:
                return await verify.verify_folder(config.logs_dir, arguments.chat_id, keys, bucket)
        if arguments.command == "reindex":
            with closing(Disk(config.logs_dir)) as disk:
                _clear_index(disk)
    elif arguments.command == "reindex":
        raise OSError("a database keeps its index with the lines; it cannot be rebuilt separately")
    if arguments.command in encryption.KEY_COMMANDS:  # also of a folder that a service owns
        return await encryption.KEY_COMMANDS[arguments.command](config, arguments)
    async with open_engine(config) as engine:
        await engine.index.wait_until_complete()
        return await _COMMANDS[arguments.command](engine, arguments)


@asynccontextmanager
async def _opening_bucket(config: Config) -> AsyncGenerator[Bucket | None]:
    if not config.blobs:
        yield None
        return
    # Imported only here: most stores do not need the HTTP client.
    from services.memory.storage.s3.bucket import open_bucket

    async with open_bucket(config.blobs, config.s3) as bucket:
        yield bucket


def _clear_index(disk: Disk) -> None:
    """Empty the index, so that every log is read again; leases are kept if it is readable."""
    path = disk.folder / INDEX_NAME
    try:
        with closing(open_database(path, is_first=False)) as database:
            database.clear_logs()
    except Exception:  # any damage is possible, and reindexing repairs it
        create_database(path, is_first=False).close()


async def _report_reindex(engine: Engine, arguments: argparse.Namespace) -> bool:
    print_line(f"{len(await engine.index.list_chats())} chats")
    return True


async def _verify_chats(engine: Engine, arguments: argparse.Namespace) -> bool:
    return await verify.verify_database(engine, arguments.chat_id)


async def _prune_chats(engine: Engine, arguments: argparse.Namespace) -> bool:
    for chat_id in await retention.prune_chats(engine, SameForAll(arguments.older_than)):
        print_line(chat_id)
    return True


async def _export_chats(engine: Engine, arguments: argparse.Namespace) -> bool:
    output: Path | None = arguments.output
    chat_ids = arguments.chat_id or await engine.index.list_chats()
    if output is None and len(chat_ids) > 1:
        raise OSError("several chats go into a folder: give one with --output")
    for chat_id in chat_ids:
        chat = await engine.chats.load(chat_id)
        data = chat_files.format_export(await engine.chats.export(chat), await engine.blobs.list_all(chat_id))
        if output is None:
            sys.stdout.buffer.write(data)
        else:
            await asyncio.to_thread(_write_file, output, f"{chat_id}.jsonl", data)
    if output is not None and not arguments.chat_id:
        # Renumbered, because each engine assigns its own numbers.
        numbered = (
            msgspec.structs.replace(fact, n=n) for n, fact in enumerate(await engine.records.facts.list_all(), 1)
        )
        lines = {FACTS: map(user_facts.encode_fact, numbered), VERSIONS: await _encode_versions(engine)}
        lines |= {name: await _encode_records(records) for name, records in _list_copied(engine).items()}
        for name, encoded in lines.items():
            if data := b"".join(encoded):
                await asyncio.to_thread(_write_file, output, name, data)
    return True


async def _import_chats(engine: Engine, arguments: argparse.Namespace) -> bool:
    problems: list[str] = []
    for path in (file for given in arguments.path for file in chat_files.list_files(given)):
        try:
            await _import_file(engine, path)
        except chat_files.UnreadableFile as error:
            problems.append(str(error))
        except InvalidRequest as error:  # such as a chat that exists
            problems.append(f"{path}: {error}")
    if problems:
        raise chat_files.UnreadableFile("\n".join(problems))
    return True


async def _import_file(engine: Engine, path: Path) -> None:
    if path.name == FACTS:
        lines = _read_lines(path, user_facts.decode_facts, "facts")
        await engine.records.facts.import_all(fact for facts in lines for fact in facts)
    elif path.name == VERSIONS:
        for version, definition in _read_lines(path, agent_versions.decode_version, "versions of agents"):
            await engine.records.agent_versions.import_version(version, definition)
    elif records := _list_copied(engine).get(path.name):
        decode = msgspec.json.Decoder(records.kind.struct).decode
        for record in _read_lines(path, decode, records.kind.plural):
            await records.put(record)  # known ones stay
    else:
        found = await asyncio.to_thread(chat_files.read_chat_file, path)
        tenant = read_chat(found.chat_id, found.log).info.owner.tenant
        await engine.blobs.put_all(found.chat_id, tenant, found.blobs)
        await engine.chats.import_log(found.chat_id, found.log)
        print_line(found.chat_id)


async def _move_blobs(engine: Engine, arguments: argparse.Namespace) -> bool:
    # Imported only here: most stores do not need the HTTP client.
    from services.memory.storage.s3.blobs import S3Blobs

    if not isinstance(engine.blobs, S3Blobs):
        raise OSError("HEADRACE_MEMORY_BLOBS names no bucket to move blobs to")
    count = 0
    for chat_id in await engine.index.list_chats():
        with suppress(NotFound):  # deleted in the meantime
            count += await engine.blobs.move_chat(chat_id)
    print_line(f"{count} blobs moved")
    return True


_COMMANDS = {
    "export": _export_chats,
    "import": _import_chats,
    "move-blobs": _move_blobs,
    "prune": _prune_chats,
    "reencrypt": encryption.reencrypt,
    "reindex": _report_reindex,
    "verify": _verify_chats,
}


def _list_copied(engine: Engine) -> dict[str, Records[Any]]:
    """Return the records that exports contain, by file name."""
    return {f"{records.kind.plural}.jsonl": records for records in engine.records.kinds if records.kind.plural}


async def _encode_records(records: Records[Any]) -> list[bytes]:
    found = await records.list_all()
    numbers: dict[str, Any] = {"version": 1} | ({"revision": 0} if records.kind.counter else {})
    return [records.kind.encode(msgspec.structs.replace(record, **numbers)) + b"\n" for record in found]


def _read_lines(path: Path, decode: Callable[[bytes], T], what: str) -> list[T]:
    try:
        return [decode(line) for line in path.read_bytes().splitlines()]
    except ValueError as error:  # invalid JSON, or not text
        raise chat_files.UnreadableFile(f"{path} holds what are no {what}: {error}") from error


async def _encode_versions(engine: Engine) -> list[bytes]:
    lines: list[bytes] = []
    for version in await engine.records.agent_versions.list_all():
        found = await engine.records.agent_versions.find(version.tenant, version.agent_key, version=version.version)
        assert found is not None, "no version is ever deleted"
        lines.append(agent_versions.encode_version(*found))
    return lines


def _write_file(folder: Path, name: str, data: bytes) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)


def _build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="headrace chats", description="Chats of a folder that no service owns now, or of HEADRACE_DATABASE_URL."
    )
    parser.add_argument(
        "--data-dir", help="what the services keep; else HEADRACE_DATABASE_URL or HEADRACE_DATA_DIR, else .data"
    )
    commands = parser.add_subparsers(dest="command", required=True)
    export = commands.add_parser(
        "export",
        help="write chats as JSON lines, with their blobs; all: with facts, schedules, agents, versions, keys too",
    )
    export.add_argument("chat_id", nargs="*", type=_parse_chat_id, help="chats; all without one")
    export.add_argument("--output", type=Path, help="a folder; without it one chat goes to standard output")
    bring = commands.add_parser(
        "import", help="read chats: exported ones, Chat Memory V3 and V3.1, Blade-style entries"
    )
    bring.add_argument("path", nargs="+", type=Path, help="files, or folders of them")
    commands.add_parser("move-blobs", help="move the files of stored chats to HEADRACE_MEMORY_BLOBS")
    prune = commands.add_parser("prune", help="delete chats that nobody has used for long")
    prune.add_argument("--older-than", type=_parse_days, required=True, metavar="AGE", help="7d, 12h or 30m")
    check = commands.add_parser("verify", help="read every line and blob, and say what is not what was written")
    check.add_argument("chat_id", nargs="*", type=_parse_chat_id, help="chats; all without one")
    encryption.add_commands(commands)
    commands.add_parser("reindex", help="make the index anew from the logs")
    return parser


def _parse_chat_id(text: str) -> str:
    if not is_uuid(text):
        raise argparse.ArgumentTypeError(f"{text!r}: expected a chat's id, a UUID")
    return text


def _parse_days(text: str) -> float:
    match = _AGE.fullmatch(text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r}: expected an age such as 7d, 12h or 30m")
    return int(match[1]) * _DAYS[match[2]]


if __name__ == "__main__":
    main()
