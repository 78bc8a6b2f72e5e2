"""headrace context, and /context in a conversation."""

from pathlib import Path

from tests.support.command_line import run
from tests.support.facade.scripted import CHAT, RUN, Script, answering, suite


async def test_a_window_is_shown_by_kind_with_what_has_left(tmp_path: Path) -> None:
    script = Script(query=answering("a"))
    async with suite(tmp_path, script) as facade:
        code, out, _ = await run("context", "--agent", "writer", "--run", RUN, CHAT, url=facade.url)
        _, converse, _ = await run("chat", "--chat", CHAT, url=facade.url, given=b"/context\n")
    shown = out.decode()
    assert code == 0
    assert "writer, sim-1: 9,300 tokens of 32,000 (29%)" in shown
    assert "  tools         2,600  ██ 7\n" in shown
    assert "too long for its place" in shown
    assert "summarised: 24 messages, 8,800 tokens, lines 1-29: a summary stands for it" in shown
    assert "left out: 1 results, 40,000 tokens, lines 31-31: does not fit the model's window" in shown
    assert "75% of the last call came from the provider's cache" in shown
    assert "the chat is 85% full" in shown
    assert "a compaction comes before the next turn" in shown
    assert (
        "compacted (auto, between runs, summary, edited since): 26,000 tokens are 9,000 (35%); "
        "files kept: plan.md; the summary is line 41\n"
        "  it stands for lines 1-29, 24 messages; 9 stay\n"
        "  its writer saw 8,000 of 8,800 tokens; not all of lines 12-14\n"
        "  it cost 9000 tokens in, 600 out, 1 model call, $0.0200, 50% cached\n"
        "  kept: Intent: My boat is Ada.\n"
        "      1,200  Primary request and intent\n"
        "        300  Behind the summary\n"
        "spent in this chat: 90000 tokens in, 4000 out, 30 model calls, $0.2500\n"
        "  of that by summaries between runs: 9000 tokens in, 600 out, 1 model call, $0.0200\n"
    ) in shown
    asked = [(request.chat_id, request.agent_key, request.run_id) for request in script.requests]
    assert asked == [(CHAT, "writer", RUN), (CHAT, "", "")]
    assert "helper, sim-1: 9,300 tokens" in converse.decode()
