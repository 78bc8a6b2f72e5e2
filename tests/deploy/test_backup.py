"""A backup made while chats grow, and its restore: ended runs are complete, and every chat stays usable."""

import asyncio
import subprocess
import tarfile
import threading
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from services.simulator.server import simulator
from tests.support.suite import Suite, running

BACKUP = Path(__file__).parents[2] / "deploy" / "backup"

RULES: list[dict[str, Any]] = [
    {
        "match": {"text": "^write$"},
        "steps": [{"toolCall": "_bash_", "id": "call_1", "arguments": ['{"command":"echo kept > kept.txt"}']}],
    },
    {"steps": [{"content": "fine "}] * 10},
]

WRITERS = 4
"""Number of chats that grow meanwhile."""


def back_up(data_dir: Path, target: Path) -> tuple[int, str]:
    """Run the script; return its exit code and standard error."""
    process = subprocess.run([BACKUP, data_dir, target], capture_output=True, text=True, timeout=60, check=False)
    return process.returncode, process.stderr


async def test_a_backup_made_in_use_restores_chats_webhooks_and_files(tmp_path: Path) -> None:
    async with asyncio.timeout(900), simulator(RULES) as sim:
        async with running(tmp_path / "config", tmp_path / "data", sim) as suite:
            chat_id = (await suite.ask("write", "react"))[1]["chatId"]
            _, webhook_reply = await suite.post("/api/webhooks", {"url": "https://hooks.example/", "paused": True})
            before = await read_chat(suite, chat_id)
            async with growing_chats(suite):
                assert await asyncio.to_thread(back_up, tmp_path / "data", tmp_path / "backup.tar") == (0, "")
        with tarfile.open(tmp_path / "backup.tar") as tar:
            assert [name for name in tar.getnames() if "index" in name] == []
            tar.extractall(tmp_path / "restored", filter="data")
        async with running(tmp_path / "config", tmp_path / "restored", sim) as suite:
            assert await read_chat(suite, chat_id) == before
            webhooks = (await suite.get("/api/webhooks"))[1]["data"]
            assert [webhook["webhookId"] for webhook in webhooks] == [webhook_reply["data"]["webhook"]["webhookId"]]
            workspace = tmp_path / "restored" / "workspaces" / chat_id
            assert (workspace / "kept.txt").read_text() == "kept\n"
            chats = (await suite.get("/api/chats"))[1]["data"]
            assert len(chats) > WRITERS
            for chat in chats:
                next_run = await suite.ask("and on", chatId=chat["chatId"])
                assert next_run[-1]["type"] == "run.complete"


@asynccontextmanager
async def growing_chats(suite: Suite) -> AsyncGenerator[None]:
    """Within the block chats grow, and each has grown at least once."""
    runs_ended = asyncio.Semaphore(0)

    async def ask_on() -> None:
        chat: dict[str, str] = {}
        while True:
            chat = {"chatId": (await suite.ask("go", **chat))[1]["chatId"]}
            runs_ended.release()

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(ask_on()) for _ in range(WRITERS)]
        for _ in range(2 * WRITERS):
            await runs_ended.acquire()
        yield
        for task in tasks:
            task.cancel()


async def read_chat(suite: Suite, chat_id: str) -> Any:
    status, body = await suite.get("/api/chat", chatId=chat_id)
    assert status == 200, body
    return body["data"]


def test_files_changing_during_a_backup_are_not_an_error(tmp_path: Path) -> None:
    chats = tmp_path / "data" / "chats"
    chats.mkdir(parents=True)
    with (chats / "a.jsonl").open("wb") as log:
        log.truncate(32 << 20)
    stopped = threading.Event()

    def change() -> None:
        with (chats / "a.jsonl").open("ab") as log:
            while not stopped.is_set():
                log.write(b"line\n")
                log.flush()
                for number in range(50):
                    (chats / f"{number}.new").touch()
                for number in range(50):
                    (chats / f"{number}.new").unlink()

    with ThreadPoolExecutor() as threads:
        changing = threads.submit(change)
        try:
            assert back_up(tmp_path / "data", tmp_path / "backup.tar") == (0, "")
        finally:
            stopped.set()
        changing.result()


def test_a_backup_is_not_overwritten_and_a_partial_one_is_removed(tmp_path: Path) -> None:
    (tmp_path / "data" / "chats").mkdir(parents=True)
    target = tmp_path / "backup.tar"
    assert back_up(tmp_path / "data", target) == (0, "")
    code, complaint = back_up(tmp_path / "data", target)
    assert (code, "is there already" in complaint) == (2, True)
    code, _ = back_up(tmp_path / "nothing", tmp_path / "other.tar")
    assert code != 0
    (tmp_path / "data" / "chats").rmdir()
    code, _ = back_up(tmp_path / "data", tmp_path / "other.tar")
    assert code != 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["backup.tar", "data"]
