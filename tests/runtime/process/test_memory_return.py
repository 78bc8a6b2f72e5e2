"""Memory is returned by a process that has created large cyclic garbage, and by one that has counted tokens and is
idle.
"""

import subprocess
import sys

import pytest

PROGRAM = """
import asyncio, gc, sys
from services.runtime.process.program import measure_rss, return_memory

class Run:
    def __init__(self):
        self.itself, self.text = self, bytearray(4_000_000)
        self.pieces = [b"x" * 60_000 for _ in range(20)]

async def main(returns):
    gc.collect(), gc.freeze()
    task = asyncio.create_task(return_memory(growth_bytes=8 << 20, look_s=0.01)) if returns else None
    await asyncio.sleep(0)  # it looks for the first time
    before, small = measure_rss(), []
    for _ in range(20):
        small.append(Run().pieces[0])  # above what is free
    while (grown := measure_rss() - before) > 20 << 20 and task is not None:
        await asyncio.sleep(0.01)
    print(grown >> 20)

asyncio.run(main(sys.argv[1] == "returns"))
"""


@pytest.mark.parametrize("how", ["returns", "keeps"])
def test_garbage_of_large_responses_is_returned(how: str) -> None:
    run = subprocess.run([sys.executable, "-c", PROGRAM, how], stdout=subprocess.PIPE, timeout=100, check=True)
    assert (int(run.stdout) <= 20) is (how == "returns")


REST = """
import asyncio, gc
from services.runtime.process.program import measure_rss, return_memory
from services.runtime.tokens import count
from services.runtime.tokens.count import count_text

async def main():
    task = asyncio.create_task(return_memory(look_s=0.01, rest_s=1.0))
    before, text = measure_rss(), "Hello, world"
    counted = await asyncio.to_thread(count_text, text, "o200k_base")
    grown = measure_rss() - before
    for _ in range(30):
        await asyncio.sleep(0.05)
        assert count_text(text, "o200k_base") == counted
        assert count.is_loaded("o200k_base"), "dropped while it is used"
    while count.is_loaded("o200k_base") or measure_rss() - before > grown // 3:
        await asyncio.sleep(0.01)
    print(count_text(text, "o200k_base") - counted)

asyncio.run(main())
"""


def test_an_unused_encoding_is_dropped_and_its_memory_returned() -> None:
    run = subprocess.run([sys.executable, "-c", REST], stdout=subprocess.PIPE, timeout=100, check=True)
    assert run.stdout == b"0\n"


LARGE = """
import asyncio
from services.runtime.process.program import measure_rss, return_memory

async def main():
    task = asyncio.create_task(return_memory(look_s=1000))
    await asyncio.sleep(0)
    before, small = measure_rss(), []
    for _ in range(3):
        large = []
        for _ in range(5):
            large.append(b"x" * (20 << 20))
            small.append(b"x" * 100_000)  # above
        del large
    print(measure_rss() - before >> 20)

asyncio.run(main())
"""


def test_memory_of_large_blocks_is_returned_at_once() -> None:
    run = subprocess.run([sys.executable, "-c", LARGE], stdout=subprocess.PIPE, timeout=100, check=True)
    assert int(run.stdout) < 10
