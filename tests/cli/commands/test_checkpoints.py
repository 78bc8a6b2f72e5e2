"""Checkpoints, reverts, pins, summaries and state of a chat, on the command line and in a conversation."""

import json
import re
from pathlib import Path

from tests.support.command_line import run
from tests.support.facade.scripted import CHAT, RUN, Script, answering, suite

PINS = "line  role  text\n   1  user  My boat is Ada.\n"


async def test_checkpoints_are_listed_with_the_latest_last(tmp_path: Path) -> None:
    async with suite(tmp_path) as facade:
        code, out, _ = await run("chats", "checkpoints", CHAT, url=facade.url)
        _, with_steps, _ = await run("chats", "checkpoints", "--steps", CHAT, url=facade.url)
    assert code == 0
    head, *rows = (re.split(r"  +", line.strip()) for line in out.decode().splitlines())
    assert head == ["id", "created", "line", "before"]
    assert [(row[0], row[-1]) for row in rows] == [("0", "水车 怎么做"), ("2", "and now?")]
    assert "2  step: weather, bash" in with_steps.decode()


async def test_a_chat_is_reverted_or_the_error_says_why_not(tmp_path: Path) -> None:
    async with suite(tmp_path) as facade:
        code, out, _ = await run("chats", "revert", CHAT, "2", url=facade.url)
        refused, _, complaint = await run("chats", "revert", CHAT, "9", url=facade.url)
        wrong, _, _ = await run("chats", "revert", CHAT, "x", url=facade.url)
        (revert,) = facade.memory.reverted
    assert (code, revert.chat_id, revert.checkpoint_id, revert.run_id) == (0, CHAT, 2, "")
    assert b"its log keeps everything" in out
    assert (refused, wrong) == (1, 2)
    assert b"has no checkpoint 9" in complaint


async def test_the_state_is_shown_and_replaced(tmp_path: Path) -> None:
    async with suite(tmp_path) as facade:
        _, before, _ = await run("chats", "state", CHAT, url=facade.url)
        code, after, _ = await run("chats", "state", CHAT, "--set", '{"todos": ["水"]}', url=facade.url)
        _, shown, _ = await run("chats", "state", CHAT, url=facade.url)
        wrong, _, complaint = await run("chats", "state", CHAT, "--set", "{", url=facade.url)
        stored = facade.memory.state
    assert (before, code, wrong) == (b"{}\n", 0, 2)
    assert b"is no JSON" in complaint
    assert [json.loads(text) for text in (after, shown, stored)] == [{"todos": ["水"]}] * 3


async def test_a_conversation_is_reverted_to_a_checkpoint(tmp_path: Path) -> None:
    async with suite(tmp_path, Script(query=answering("a"))) as facade:
        given = b"/checkpoints\nhi\n/checkpoints\n/revert\n/revert 2\n/revert 9\n"
        code, out, complaint = await run("chat", url=facade.url, given=given)
        reverted = [revert.checkpoint_id for revert in facade.memory.reverted]
    assert (code, reverted) == (0, [2])
    shown = out.decode()
    assert "nothing has been asked in this chat yet" in shown
    assert "and now?" in shown
    assert "/revert needs the id of a checkpoint" in shown
    assert "as it was at checkpoint 2" in shown
    assert b"has no checkpoint 9" in complaint


async def test_messages_are_pinned_and_the_summary_is_edited(tmp_path: Path) -> None:
    async with suite(tmp_path) as facade:
        assert (await run("chats", "pin", CHAT, "1", url=facade.url))[0] == 0
        _, listed, _ = await run("chats", "pins", CHAT, url=facade.url)
        assert (await run("chats", "pin", "--remove", CHAT, "1", url=facade.url))[0] == 0
        _, before, _ = await run("chats", "summary", CHAT, url=facade.url)
        _, after, _ = await run("chats", "summary", "--set", "-", CHAT, url=facade.url, given=b"of boats")
        pinned, edits = facade.memory.pinned, facade.memory.edits
    assert listed.decode() == PINS
    assert [(request.n, request.remove) for request in pinned] == [(1, False), (1, True)]
    assert (before, after) == (b"of the weather\n", b"of boats\n")
    assert [(request.n, request.text) for request in edits] == [(41, "of boats")]


async def test_a_conversation_pins_and_unpins_its_last_messages(tmp_path: Path) -> None:
    async with suite(tmp_path, Script(query=answering("a"))) as facade:
        given = b"/pin answer\nhi\n/pin\n/pin question\n/pin answer\n/unpin 3\n/pins\n"
        code, out, _ = await run("chat", url=facade.url, given=given)
        pinned = [(request.n, request.remove) for request in facade.memory.pinned]
    shown = out.decode()
    assert (code, pinned) == (0, [(4, False), (3, False), (3, True)])
    assert "nothing has been asked in this chat yet" in shown
    assert "/pin needs `question`, `answer`, or the number of a line" in shown
    assert "line 3 is pinned: every summary includes it word for word" in shown
    assert "line 3 is not pinned any more" in shown
    assert PINS in shown


async def test_context_shows_the_window_by_kind_and_what_was_left_out(tmp_path: Path) -> None:
    script = Script(query=answering("a"))
    async with suite(tmp_path, script) as facade:
        code, out, _ = await run("context", "--agent", "writer", "--run", RUN, CHAT, url=facade.url)
        _, converse, _ = await run("chat", "--chat", CHAT, url=facade.url, given=b"/context\n")
    shown = out.decode()
    assert code == 0
    assert "writer, sim-1: 9,300 tokens of 32,000 (29%)" in shown
    assert "  tools         2,600  ██ 7\n" in shown
    assert "too long for its place" in shown
    assert "summarised: 24 messages, 8,800 tokens, lines 1-29: a summary replaces it" in shown
    assert "left out: 1 results, 40,000 tokens, lines 31-31: does not fit the model's window" in shown
    assert "75% of the last call came from the provider's cache" in shown
    assert "the chat is 85% full" in shown
    assert "a compaction comes before the next turn" in shown
    assert (
        "compacted (auto, between runs, summary, edited since): 26,000 tokens are 9,000 (35%); "
        "files kept: plan.md; the summary is line 41\n"
        "  it replaces lines 1-29, 24 messages; 9 stay\n"
        "  its writer saw 8,000 of 8,800 tokens; not all of lines 12-14\n"
        "  it cost 9000 tokens in, 600 out, 1 model call, $0.0200, 50% cached\n"
        "  kept: Intent: My boat is Ada.\n"
        "      1,200  Primary request and intent\n"
        "        300  Behind the summary\n"
        "spent in this chat: 90000 tokens in, 4000 out, 30 model calls, $0.2500\n"
        "  of that by summaries between runs: 9000 tokens in, 600 out, 1 model call, $0.0200\n"
    ) in shown
    requests = [(request.chat_id, request.agent_key, request.run_id) for request in script.requests]
    assert requests == [(CHAT, "writer", RUN), (CHAT, "", "")]
    assert "helper, sim-1: 9,300 tokens" in converse.decode()
