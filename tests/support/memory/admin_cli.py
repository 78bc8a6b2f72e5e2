"""The command `headrace chats` as a process."""

import os
from collections.abc import Mapping
from pathlib import Path

from services.memory.storage.files.indexing import index_recovery
from tests.support.command_line import fork_program
from tests.support.memory.engines import Serve, lose_index
from tests.support.memory.log_editing import without_checksums
from tests.support.memory.writing import Memory, new_id


async def run_program(module: str, *arguments: str, env: Mapping[str, str]) -> tuple[int | None, str]:
    """Run a program to its end, and return its status and all that it prints."""
    code, printed, errors = await fork_program(module, *arguments, env=env)
    return code, (printed + errors).decode()


async def tool(folder: Path, *arguments: str, url: str = "", exit_code: int = 0) -> str:
    """Run the tool on the chats in `folder`, or in the database at `url`, and return its output."""
    env = {"PATH": os.environ["PATH"], "HEADRACE_MEMORY_CHAT_DIR": str(folder), "HEADRACE_DATABASE_URL": url}
    return await run_command(env, *arguments, status=exit_code)


async def load_next_context(memory: Memory, chat_id: str) -> list[str]:
    """Load the context of the next run."""
    _, run_id = await memory.begin("?", chat_id)
    found: list[str] = []
    for message in (await memory.context(chat_id, run_id))[:-1]:
        calls = "".join(f"{call.name}{call.arguments}" for call in message.tool_calls)
        found.append(f"{message.role}: {''.join(part.text for part in message.content)}{calls}")
    return found


CHATS = index_recovery.START_LOGS_MAX * 2 + 1


async def copies(serve: Serve, folder: Path, count: int = CHATS) -> set[str]:
    """Make a folder of `count` chats of one run each, without an index."""
    async with serve() as memory:
        chat_id, run_id = await memory.begin_and_end("水车")
    path = folder / f"{chat_id}.json"
    log = without_checksums(path.read_bytes()).decode()
    path.unlink()
    chats = {new_id() for _ in range(count)}
    for copy in chats:
        (folder / f"{copy}.json").write_text(log.replace(chat_id, copy).replace(run_id, new_id()))
    lose_index(folder)
    return chats


async def run_command(env: Mapping[str, str], *arguments: str, status: int = 0) -> str:
    """Run the command, which ends with this status, and return what it prints."""
    ended, printed = await run_program("headrace.cli", "chats", *arguments, env=env)
    assert ended == status, printed
    assert "Traceback" not in printed
    return printed
