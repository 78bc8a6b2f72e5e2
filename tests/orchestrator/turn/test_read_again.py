"""What has left a window is read again by the model, with tools that are offered from then on."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.v1 import llm_pb2
from services.orchestrator.calls.shown_media import BYTES_MAX, divide_media
from tests.orchestrator.calls.test_shown_media import GIF, give
from tests.orchestrator.conftest import House, Open, call, summary
from tests.orchestrator.lifecycle.test_runs import assert_paired
from tests.orchestrator.turn.test_compaction import ANSWER, DONE, SMALL, WORDS
from tests.support.timing import within

NEEDLE = "The code of the safe is 7713."
HISTORY = ["read_history", "read_result"]


def offered(request: llm_pb2.ChatRequest) -> list[str]:
    return [tool.name for tool in request.tools]


def last_result(request: llm_pb2.ChatRequest) -> str:
    return next(message.content[0].text for message in reversed(request.messages) if message.role == "tool")


def call_once(it: House, name: str, arguments: str) -> None:
    """Have the model call a tool, and answer when it has the result."""
    asking = call(name, arguments, call_id=f"r{len(it.llm.requests)}") + DONE
    it.llm.reply = lambda request: ANSWER if request.messages[-1].role == "tool" else asking


async def compact_chat(it: House, agent: str) -> None:
    """Plant the needle, and talk until it is summarised away."""
    it.llm.models = [SMALL]
    it.llm.aside["compact"] = summary("They spoke of the weather.")
    await it.ask("hello", agent=agent)
    await it.ask(NEEDLE, agent=agent)
    await it.ask(WORDS * 7, agent=agent)
    async with within(60):
        while NEEDLE in str(it.llm.requests[-1].messages):
            await it.ask(WORDS, agent=agent)


@pytest.mark.parametrize("agent", ["oneshot", "react"])
async def test_a_model_finds_by_words_what_a_summary_forgot(house: Open, agent: str) -> None:
    async with house(ANSWER) as it:
        await compact_chat(it, agent)
        assert not set(HISTORY) & set(offered(it.llm.requests[1]))
        asked = it.llm.requests[-1]
        assert offered(asked)[-2:] == HISTORY
        assert asked.tool_choice == "auto"
        call_once(it, "read_history", '{"query":"code safe"}')
        events = await it.ask("What was the code?", agent=agent)
        assert events[-1]["type"] == "run.complete"
        assert_paired(it.llm.requests[-1])
        assert last_result(it.llm.requests[-1]).startswith(f"[4] user: {NEEDLE}")


async def test_a_result_that_was_cut_is_read_whole_in_parts(house: Open) -> None:
    async with house(call("look", '{"n":1}', call_id="c1") + DONE, ANSWER) as it:
        it.llm.models = [SMALL]
        it.tools.result_chars = 2500
        await it.ask("Look around.", agent="react")
        parts: list[str] = []
        for offset in (0, 1000, 2000):
            arguments = f'{{"id":"c1","offset":{offset}}}'
            call_once(it, "read_result", arguments)
            await it.ask("Read it.", agent="react")
            text, _, note = last_result(it.llm.requests[-1]).rpartition("\n[characters ")
            assert note.endswith("of 2,500]" if offset == 2000 else f"of 2,500; go on with offset={offset + 1000}]")
            parts.append(text)
        assert "".join(parts).startswith('seen {"n":1}')
        assert len("".join(parts)) == 2500


@pytest.mark.parametrize(
    ("name", "arguments", "error"),
    [
        ("read_result", '{"id":"nobody"}', "NOT_FOUND"),
        ("read_result", '{"id":"c1","offset":-1}', "INVALID_ARGUMENTS"),
        ("read_history", '{"first":"x"}', "INVALID_ARGUMENTS"),
    ],
)
async def test_a_wrong_call_is_told_what_is_wrong(house: Open, name: str, arguments: str, error: str) -> None:
    async with house(ANSWER) as it:
        await compact_chat(it, "react")
        call_once(it, name, arguments)
        events = await it.ask("Read.", agent="react")
        assert f'"error":"{error}"' in last_result(it.llm.requests[-1])
        assert events[-1]["type"] == "run.complete"


async def test_an_agent_that_disallows_tools_gets_none(house: Open) -> None:
    policy: dict[str, Any] = {"react": {"toolPolicy": "DISALLOW"}}
    async with house(ANSWER, **policy) as it:
        await compact_chat(it, "react")
        assert not it.llm.requests[-1].tools


async def test_a_picture_of_an_earlier_run_is_seen_again(house: Open) -> None:
    async with house(call("look", call_id="c1") + DONE, ANSWER) as it:
        give(it, "tools", "vision", a=GIF)
        await it.ask("Look around.", agent="react")
        await it.ask("And?", agent="react")
        assert '[image, read_result "c1" shows it again]' in str(
            [part.text for message in it.llm.requests[-1].messages for part in message.content]
        )
        assert offered(it.llm.requests[-1])[-2:] == HISTORY
        call_once(it, "read_result", '{"id":"c1"}')
        await it.ask("Look at it again.", agent="react")
        again = next(message for message in reversed(it.llm.requests[-1].messages) if message.role == "tool")
    assert [part.image.data for part in again.content if part.HasField("image")] == [GIF]
    assert "shows it again" not in again.content[0].text, "this call shows it"


PICTURE = llm_pb2.ContentPart(image=llm_pb2.ImagePart(data=GIF, mime_type="image/gif"))
LARGE = llm_pb2.ContentPart(image=llm_pb2.ImagePart(data=bytes(BYTES_MAX), mime_type="image/gif"))
SOUND = llm_pb2.ContentPart(audio=llm_pb2.AudioPart(data=b"RIFF", mime_type="audio/wav"))


@pytest.mark.parametrize(
    ("parts", "shown", "note"),
    [
        ([PICTURE], [PICTURE], ""),
        ([PICTURE, SOUND, SOUND], [PICTURE], "[2 not shown: the model is not known to take audio]"),
        ([PICTURE, LARGE], [PICTURE], "[1 not shown: a result shows at most 8, of 10 MiB together]"),
        ([PICTURE] * 9, [PICTURE] * 8, "[1 not shown: a result shows at most 8, of 10 MiB together]"),
    ],
)
def test_what_is_not_shown_again_is_told_with_why(
    parts: list[llm_pb2.ContentPart], shown: list[llm_pb2.ContentPart], note: str
) -> None:
    assert divide_media(parts, frozenset({"vision"})) == (shown, note)
