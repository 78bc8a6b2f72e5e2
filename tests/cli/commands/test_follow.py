"""headrace follow in a process of its own: it prints all runs of a chat as they arrive."""

import asyncio
import signal
from pathlib import Path
from typing import cast

from headrace.errors import NotFound, Overloaded
from headrace.v1 import agent_pb2
from tests.support.command_line import GIVEN_UP_S, run, start
from tests.support.facade.scripted import CHAT, RUN, Script, answering, delta, suite

SECOND = "33333333-3333-4333-8333-333333333333"


def follow_run(number: int, run_id: str, question: str, *pieces: str) -> list[agent_pb2.FollowDelta]:
    """Return the deltas of a run that bob started, with the log's line number in their cursors."""
    query = agent_pb2.RequestQuery(message=question, by="bob")
    events = [delta(1, request_query=query), *cast("list[agent_pb2.AgentDelta]", answering(*pieces)[1:])]
    return [agent_pb2.FollowDelta(cursor=f"{number}.{event.seq}", run_id=run_id, delta=event) for event in events]


FIRST, LATER = follow_run(1, RUN, "Why?", "Because."), follow_run(10, SECOND, "Why?", "I ", "said so.")
COMPACTION = agent_pb2.FollowDelta(
    cursor="9.0",
    delta=delta(0, compaction_complete=agent_pb2.CompactionComplete(chat_id=CHAT, pre_tokens=900, post_tokens=100)),
)


async def test_follow_prints_runs_once_despite_breaks_and_the_cursor_at_the_end(tmp_path: Path) -> None:
    script = Script(follows=[FIRST[:1], [*FIRST[1:3], Overloaded("stopping")], [*FIRST[3:], COMPACTION, *LATER]])
    async with suite(tmp_path, script) as facade:
        process = await start("follow", CHAT, url=facade.url)
        assert process.stdout is not None
        shown = list[bytes]()
        async with asyncio.timeout(GIVEN_UP_S):
            while b"I said so." not in shown:
                shown.append((await process.stdout.readline()).removesuffix(b"\n"))
            process.send_signal(signal.SIGINT)
            _, complaints = await process.communicate()
    assert [line for line in shown if not line.endswith(b"trying again")] == [
        *(b"bob> Why?", b"Because.", b"[notice] compacted: 900 tokens are 100 (11%)", b"bob> Why?", b"I said so.")
    ]
    last = LATER[-1].cursor
    assert f"continue with: headrace follow {CHAT} --cursor {last}\n".encode() in complaints
    assert [request.cursor for request in script.requests] == ["", FIRST[0].cursor, FIRST[2].cursor]


async def test_follow_starts_at_the_given_cursor(tmp_path: Path) -> None:
    script = Script(follows=[LATER])
    async with suite(tmp_path, script) as facade:
        process = await start("follow", CHAT, "--cursor", "9.0", url=facade.url)
        assert process.stdout is not None
        async with asyncio.timeout(GIVEN_UP_S):
            assert await process.stdout.readline() == b"bob> Why?\n"
            process.kill()
            await process.communicate()
    assert script.requests == [agent_pb2.FollowRequest(chat_id=CHAT, cursor="9.0")]


async def test_a_refused_follow_gives_exit_code_1_with_the_reason(tmp_path: Path) -> None:
    async with suite(tmp_path, Script(follows=[[NotFound(f"chat {CHAT} does not exist")]])) as facade:
        code, out, complaint = await run("follow", CHAT, url=facade.url)
    assert (code, out, b"does not exist" in complaint) == (1, b"", True)
