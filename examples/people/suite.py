"""A suite with users of its own: `headrace up` with API keys, over this folder or the examples, until a block ends."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import secrets
import sys
import tempfile
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from urllib.request import Request, urlopen

from headrace.client import Client

PEOPLE = Path(__file__).parent
EXAMPLES = PEOPLE.parent

READY = re.compile(r"ready: (\S+)\s+grpc (\S+)\s+memory (\S+)")
READY_TIMEOUT_S = 300.0


@asynccontextmanager
async def open_suite(*users: str, needs: str = "", config_dir: Path = PEOPLE) -> AsyncGenerator[list[Client]]:
    """Start a suite, and connect each of `users`, "NAME" or "NAME:ROLE", with an API key of their own.

    Ends the program with the reason if the tool `needs` cannot be used on this machine.
    """
    with tempfile.TemporaryDirectory(prefix="headrace-people-") as folder:
        keys = {user: secrets.token_hex(32) for user in users}
        keys_file = Path(folder, "api-keys.json")
        write_keys(keys_file, keys)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "headrace.cli", "up", "--simulate", "--simulate-port", "0"),
            *("--port", "0", "--grpc-port", "0", "--config-dir", str(config_dir), "--data-dir", folder),
            stdout=asyncio.subprocess.PIPE,
            env=os.environ | {"HEADRACE_AUTH": "api_key", "HEADRACE_AUTH_API_KEYS_FILE": str(keys_file)},
        )
        try:
            url, grpc, memory = await wait_until_ready(process)
            if needs:
                await asyncio.to_thread(check_tool, url, needs, keys[users[0]])
            async with AsyncExitStack() as stack:
                clients = [Client(grpc, memory_address=memory, token=key) for key in keys.values()]
                yield [await stack.enter_async_context(client) for client in clients]
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()


def write_keys(path: Path, keys: dict[str, str]) -> None:
    path.write_text(json.dumps({"keys": [make_entry(user, key) for user, key in keys.items()]}))


def make_entry(user: str, key: str) -> dict[str, object]:
    """Return a user's entry in the file of API keys, which has their hashes alone."""
    name, _, role = user.partition(":")
    digest = hashlib.sha256(key.encode()).hexdigest()
    return {"sha256": digest, "tenant": "mill", "user": name, "roles": [role] if role else []}


def check_tool(url: str, name: str, key: str) -> None:
    """Raise SystemExit if the tool cannot be used, as where a sandbox is missing."""
    request = Request(f"{url}/api/tool?toolName={name}", headers={"Authorization": f"Bearer {key}"})
    with urlopen(request) as response:
        if reason := json.load(response)["data"].get("unavailable"):
            sys.exit(f"this example needs the tool {name}, which cannot be used: {reason}; see `headrace doctor`")


async def wait_until_ready(process: asyncio.subprocess.Process) -> tuple[str, str, str]:
    """Return the address of the facade, and those of AgentService and MemoryService."""
    assert process.stdout is not None
    async with asyncio.timeout(READY_TIMEOUT_S):
        async for line in process.stdout:
            if ready := READY.search(line.decode()):
                return ready[1], ready[2], ready[3]
    raise RuntimeError("headrace up ended before it was ready; it has said why")


def tell(who: str, what: str) -> None:
    print(f"{who + ':':<12}{what}", flush=True)
