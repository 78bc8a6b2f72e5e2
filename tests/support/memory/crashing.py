"""A writer to be killed or failed: `python -m tests.support.memory.crashing PLACE ROUND CHAT…` appends until it is
stopped, or has done enough, and prints what was acknowledged. It repeats a refused append with the same request id.
"""

import asyncio
import sys
import uuid
from pathlib import Path

import structlog

from headrace.errors import DiskFull, HeadraceError, LogDamaged, StaleLease
from headrace.v1 import memory_pb2
from tests.support.memory.messages import content, user
from tests.support.memory.serving import memory_in, memory_over
from tests.support.memory.writing import Memory, query_line, run_line, step_line

APPENDS = 30
TRIES = 20

PROBE_S = 0.01
"""A disk that was full for one call has room again at once."""


async def main(place: str, turn: str, chat_ids: list[str]) -> None:
    is_folder = not place.startswith("postgresql:")
    async with memory_over(Path(place), probe_s=PROBE_S) if is_folder else memory_in(place) as memory:
        await asyncio.gather(*(write(memory, chat_id, turn) for chat_id in chat_ids))


async def write(memory: Memory, chat_id: str, turn: str) -> None:
    """Hold one run: a query, steps of two lines, an end."""
    run_id = make_id(chat_id, turn, "run")
    lines: list[list[memory_pb2.LogLine]] = [[query_line("go")]]
    lines += [[step_line(user("x" * 1500)), step_line(content(str(index)))] for index in range(APPENDS)]
    lines += [[run_line()]]
    for index, appended in enumerate(lines):
        if not await try_append(memory, chat_id, run_id, make_id(chat_id, turn, str(index)), appended):
            return


async def try_append(
    memory: Memory, chat_id: str, run_id: str, request_id: str, lines: list[memory_pb2.LogLine]
) -> bool:
    """Append, and repeat while the disk refuses; return whether the chat accepts more."""
    for _ in range(TRIES):
        try:
            reply = await memory.append(chat_id, run_id, *lines, request_id=request_id)
        except (LogDamaged, StaleLease):
            return False
        except DiskFull:
            await asyncio.sleep(2 * PROBE_S)
            continue
        except HeadraceError:
            continue
        sys.stdout.write(f"acknowledged {chat_id} {request_id} {reply.first_n} {reply.last_n}\n")
        sys.stdout.flush()
        return True
    return False


def make_id(*names: str) -> str:
    """Return the id that belongs to these names."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, " ".join(names)))


if __name__ == "__main__":
    # Standard output is only for what is acknowledged.
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
