"""`python -m services.memory.admin_cli`: export, import, prune, reindex and verify chats.

A folder must belong to no running service, except to be verified; a database may be in use.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import sys
from contextlib import closing
from pathlib import Path

import msgspec

from headrace.errors import HeadraceError
from services.memory.access import retention
from services.memory.admin_cli import verify
from services.memory.config import Config
from services.memory.engines import open_engine
from services.memory.importing import chat_files
from services.memory.storage import user_facts
from services.memory.storage.engine import Engine
from services.memory.storage.files.database import create_database, open_database
from services.memory.storage.files.disk import Disk
from services.memory.storage.files.index_recovery import INDEX_NAME
from services.runtime.process import config as settings
from services.runtime.process import logs

FACTS = "facts.jsonl"

_AGE = re.compile(r"([0-9]{1,5})([dhm])")
_DAYS = {"d": 1.0, "h": 1 / 24, "m": 1 / 24 / 60}


def main() -> None:
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
    """Run the command, and return whether the chats are well."""
    is_reindex = arguments.command == "reindex"
    if config.database_url:
        if is_reindex:
            raise OSError("a database keeps its index with the lines: there is none to make anew")
    elif not config.logs_dir.exists() and arguments.command != "import":
        raise OSError(f"{config.logs_dir}: there are no chats")
    elif arguments.command == "verify":
        return verify.verify_folder(config.logs_dir, arguments.chat_id)
    elif is_reindex:
        with closing(Disk(config.logs_dir)) as disk:
            _clear_index(disk)
    async with open_engine(config) as engine:
        if arguments.command == "verify":
            return await verify.verify_database(engine, arguments.chat_id)
        await _COMMANDS[arguments.command](engine, arguments)
    return True


def _clear_index(disk: Disk) -> None:
    """Empty the index, so that every log is read again; leases stay where it is readable."""
    path = disk.folder / INDEX_NAME
    try:
        with closing(open_database(path, is_first=False)) as database:
            database.clear_logs()
    except Exception:  # whatever is wrong with it: this is how it is put right
        create_database(path, is_first=False).close()


async def _report_reindex(engine: Engine, arguments: argparse.Namespace) -> None:
    _print_line(f"{len(await engine.index.list_chats())} chats")


async def _prune_chats(engine: Engine, arguments: argparse.Namespace) -> None:
    gone = await retention.prune_chats(engine, arguments.older_than)
    for chat_id in gone:
        _print_line(chat_id)


async def _export_chats(engine: Engine, arguments: argparse.Namespace) -> None:
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
    if output is not None and not arguments.chat_id and (facts := await engine.facts.list_all()):
        await asyncio.to_thread(_write_file, output, FACTS, b"".join(map(user_facts.encode_fact, facts)))


async def _import_chats(engine: Engine, arguments: argparse.Namespace) -> None:
    for path in (file for given in arguments.path for file in chat_files.list_files(given)):
        if path.name == FACTS:
            await engine.facts.import_all(_read_facts(path))
            continue
        found = await asyncio.to_thread(chat_files.read_chat_file, path)
        await engine.blobs.put_all(found.chat_id, found.blobs)
        await engine.chats.import_log(found.chat_id, found.log)
        _print_line(found.chat_id)


_COMMANDS = {"export": _export_chats, "import": _import_chats, "prune": _prune_chats, "reindex": _report_reindex}


def _read_facts(path: Path) -> list[user_facts.Fact]:
    try:
        return [user_facts.decode_fact(line) for line in path.read_bytes().splitlines()]
    except msgspec.DecodeError as error:
        raise chat_files.UnreadableFile(f"{path} holds what are no facts: {error}") from error


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
    export = commands.add_parser("export", help="write chats as JSON lines, with their blobs; all of them: with facts")
    export.add_argument("chat_id", nargs="*", help="chats; all without one")
    export.add_argument("--output", type=Path, help="a folder; without it one chat goes to standard output")
    bring = commands.add_parser(
        "import", help="read chats: exported ones, Chat Memory V3 and V3.1, Blade-style entries"
    )
    bring.add_argument("path", nargs="+", type=Path, help="files, or folders of them")
    prune = commands.add_parser("prune", help="delete chats that nobody has used for long")
    prune.add_argument("--older-than", type=_parse_days, required=True, metavar="AGE", help="7d, 12h or 30m")
    check = commands.add_parser("verify", help="read every line and blob, and say what is not what was written")
    check.add_argument("chat_id", nargs="*", help="chats; all without one")
    commands.add_parser("reindex", help="make the index anew from the logs")
    return parser


def _parse_days(text: str) -> float:
    found = _AGE.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r}: expected an age such as 7d, 12h or 30m")
    return int(found[1]) * _DAYS[found[2]]


def _print_line(text: str) -> None:
    sys.stdout.write(f"{text}\n")


if __name__ == "__main__":
    main()
