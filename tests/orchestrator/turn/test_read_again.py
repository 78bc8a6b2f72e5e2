"""Once messages have left the window, the model is offered tools to read them again."""

from typing import Any

import pytest

from headrace.v1 import llm_pb2
from services.orchestrator.calls.results import BYTES_MAX, divide_media
from tests.support.orchestrator import Serve, call, last_result
from tests.support.orchestrator.compaction import ANSWER, DONE, NEEDLE, SMALL, call_once, compact_chat
from tests.support.orchestrator.media import GIF, give_pictures

HISTORY = ["read_history", "read_result"]


def list_offered_tools(request: llm_pb2.ChatRequest) -> list[str]:
    return [tool.name for tool in request.tools]


@pytest.mark.parametrize("agent", ["oneshot", "react"])
async def test_read_history_finds_by_words_what_a_summary_omits(serve: Serve, agent: str) -> None:
    async with serve(ANSWER) as suite:
        await compact_chat(suite, agent)
        assert not set(HISTORY) & set(list_offered_tools(suite.llm.requests[1]))
        request = suite.llm.requests[-1]
        assert list_offered_tools(request)[-2:] == HISTORY
        assert request.tool_choice == "auto"
        call_once(suite, "read_history", '{"query":"code safe"}')
        events = await suite.ask("What was the code?", agent=agent)
        assert events[-1]["type"] == "run.complete"
        assert last_result(suite).startswith(f"[4] user: {NEEDLE}")


async def test_read_result_returns_a_cut_result_in_parts(serve: Serve) -> None:
    async with serve(call("look", '{"n":1}', call_id="c1") + DONE, ANSWER) as suite:
        suite.llm.models = [SMALL]
        suite.tools.result_chars = 2500
        await suite.ask("Look around.", agent="react")
        parts: list[str] = []
        for offset in (0, 1000, 2000):
            call_once(suite, "read_result", f'{{"id":"c1","offset":{offset}}}')
            await suite.ask("Read it.", agent="react")
            text, _, note = last_result(suite).rpartition("\n[characters ")
            assert note.endswith("of 2,500]" if offset == 2000 else f"of 2,500; go on with offset={offset + 1000}]")
            parts.append(text)
        assert "".join(parts).startswith('seen {"n":1}')
        assert len("".join(parts)) == 2500


async def test_read_history_returns_as_much_as_the_built_in_window_takes(serve: Serve) -> None:
    model = {"providerKey": "scripted", "model": "gpt-4o"}
    async with serve(ANSWER, modelConfig=model, memory={"maxRuns": 1, "older": "drop"}) as suite:
        suite.llm.models = [llm_pb2.ModelInfo(provider_key="scripted", model="gpt-4o")]
        for message in ("word " * 4000, "two", "three"):
            await suite.ask(message)
        call_once(suite, "read_history", '{"first":1,"last":1}')
        await suite.ask("Read it.")
        assert 11_000 < len(last_result(suite)) < 13_000


@pytest.mark.parametrize(
    ("name", "arguments", "error"),
    [
        ("read_result", '{"id":"nobody"}', "NOT_FOUND"),
        ("read_result", '{"id":"c1","offset":-1}', "INVALID_ARGUMENTS"),
        ("read_history", '{"first":"x"}', "INVALID_ARGUMENTS"),
    ],
)
async def test_an_invalid_call_gets_an_error_result(serve: Serve, name: str, arguments: str, error: str) -> None:
    async with serve(ANSWER) as suite:
        await compact_chat(suite, "react")
        call_once(suite, name, arguments)
        events = await suite.ask("Read.", agent="react")
        assert f'"error":"{error}"' in last_result(suite)
        assert events[-1]["type"] == "run.complete"


async def test_an_agent_that_disallows_tools_is_not_offered_them(serve: Serve) -> None:
    policy: dict[str, Any] = {"react": {"toolPolicy": "DISALLOW"}}
    async with serve(ANSWER, **policy) as suite:
        await compact_chat(suite, "react")
        assert not suite.llm.requests[-1].tools


async def test_read_result_returns_a_picture_of_an_earlier_run(serve: Serve) -> None:
    async with serve(call("look", call_id="c1") + DONE, ANSWER) as suite:
        give_pictures(suite, "tools", "vision", a=GIF)
        await suite.ask("Look around.", agent="react")
        await suite.ask("And?", agent="react")
        assert '[image, read_result "c1" shows it again]' in str(
            [part.text for message in suite.llm.requests[-1].messages for part in message.content]
        )
        assert list_offered_tools(suite.llm.requests[-1])[-2:] == HISTORY
        call_once(suite, "read_result", '{"id":"c1"}')
        await suite.ask("Look at it again.", agent="react")
        result = next(message for message in reversed(suite.llm.requests[-1].messages) if message.role == "tool")
    assert [part.image.data for part in result.content if part.HasField("image")] == [GIF]
    assert "shows it again" not in result.content[0].text, "the result has the picture itself"


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
def test_omitted_media_are_counted_with_the_reason(
    parts: list[llm_pb2.ContentPart], shown: list[llm_pb2.ContentPart], note: str
) -> None:
    assert divide_media(parts, frozenset({"vision"})) == (shown, note)
