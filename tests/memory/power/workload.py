"""Writes to a folder of chats and prints what was acknowledged: `python -m tests.memory.power.workload FOLDER SYNCS`.

At sync number SYNCS (0: never) the process kills itself instead.
"""

import asyncio
import os
import signal
import sys
from itertools import count
from pathlib import Path

from headrace.v1 import memory_pb2
from tests.support.memory.crashing import make_id
from tests.support.memory.messages import content, user
from tests.support.memory.serving import memory_over
from tests.support.memory.writing import Memory, query_line, run_line, step_line

CHATS = [make_id("chat", str(index)) for index in range(3)]
FORGOTTEN = make_id("chat", "forgotten")
WORDS = ("appended", "leased", "remembered", "put", "forked", "deleting", "deleted", "forgetting", "forgot")
"""First words of the lines that say what was acknowledged or started; the service logs to the same output."""

SECRET = "fact 1"
"""The fact that will be deleted."""

SIZES = (10, 1200, 40, 700, 5000, 3, 520)
"""Characters of the messages in turn: some within a sector, some over several pages."""


async def main(folder: Path, syncs: int) -> None:
    numbers, secret = count(1), ""

    def sync(fd: int) -> None:
        if next(numbers) == syncs:
            os.kill(os.getpid(), signal.SIGKILL)
        os.fdatasync(fd)

    async with memory_over(folder, sync=sync) as memory:
        await asyncio.gather(*(write_chat(memory, chat_id) for chat_id in (*CHATS, FORGOTTEN)))
        print_line("leased", run := make_id(CHATS[0], "open"), str(await memory.acquire(CHATS[0], run, "here:1")))
        for index in range(3):
            text = f"fact {index}"
            print_line("remembered", fact_id := await memory.remember(text, request_id=make_id(text)))
            if text == SECRET:
                secret = fact_id
            blob = await memory.put_blob(CHATS[index], os.urandom(700 * index + 1))
            print_line("put", CHATS[index], blob)
        print_line("forgetting", secret)
        await memory.delete_fact(secret)
        print_line("forgot", secret)
        print_line("remembered", await memory.remember("fact 3"))
        print_line("forked", await memory.fork(CHATS[1]))
        print_line("deleting", FORGOTTEN)
        await memory.delete(FORGOTTEN)
        print_line("deleted", FORGOTTEN)


async def write_chat(memory: Memory, chat_id: str) -> None:
    """Hold a run that sends several appends at a time, so that they are written together."""
    run_id = make_id(chat_id, "run")
    await append(memory, chat_id, run_id, "query", query_line("go"))
    for turn in range(6):
        names = [f"{turn} {index}" for index in range(4)]
        await asyncio.gather(*(append(memory, chat_id, run_id, name, *make_lines(name)) for name in names))
    await append(memory, chat_id, run_id, "end", run_line())
    if chat_id == CHATS[0]:
        await append(memory, chat_id, make_id(chat_id, "open"), "open", query_line("go on"))


def make_lines(name: str) -> list[memory_pb2.LogLine]:
    first = sum(name.encode())
    texts = ["x" * SIZES[(first + index) % len(SIZES)] for index in range(1 + first % 3)]
    return [step_line(user(text), content(name)) for text in texts]


async def append(memory: Memory, chat_id: str, run_id: str, name: str, *lines: memory_pb2.LogLine) -> None:
    request_id = make_id(chat_id, name)
    reply = await memory.append(chat_id, run_id, *lines, request_id=request_id)
    print_line("appended", chat_id, request_id, str(reply.first_n), str(reply.last_n))


def print_line(*words: str) -> None:
    os.write(sys.stdout.fileno(), (" ".join(words) + "\n").encode())


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
