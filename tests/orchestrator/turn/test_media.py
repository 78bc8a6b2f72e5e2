"""Pictures and sounds in a model's answer, and in results of tools for models that are known to accept them."""

import pytest

from headrace.errors import QuotaExceeded
from headrace.v1 import common_pb2, llm_pb2
from tests.support.orchestrator import Serve, Suite, ask, list_notices
from tests.support.orchestrator.media import GIF, give_pictures
from tests.support.orchestrator.runs import read_recorded
from tests.support.orchestrator.steps import ANSWER, Step, answer, call, call_tool, content, finish
from tests.support.order import Event, fold

FORM = common_pb2.OutputFormat(schema='{"type":"object"}', name="place")


def picture(data: bytes = b"png", mime_type: str = "image/png") -> list[Step]:
    return [llm_pb2.LlmDelta(media=llm_pb2.LlmMedia(data=data, mime_type=mime_type))]


def omitted_media(problem: str) -> list[Step]:
    return [llm_pb2.LlmDelta(media=llm_pb2.LlmMedia(problem=problem))]


def link(chat_id: str, name: str) -> str:
    return f"![{name}](/api/resource?chatId={chat_id}&path=outputs%2F{name})"


def read_text(events: list[Event]) -> str:
    blocks = fold(events)["blocks"].values()
    return "".join(block["text"] for block in blocks if block["kind"] == "content")


def list_artifacts(events: list[Event]) -> list[str]:
    return [event["name"] for event in events if event["type"] == "artifact.publish"]


@pytest.mark.parametrize("agent", ["react", "oneshot"])
async def test_a_picture_becomes_an_artifact_and_a_link_after_the_text(serve: Serve, agent: str) -> None:
    async with serve([*content("Here ", "it is."), *picture(), *finish()]) as suite:
        events = await suite.ask(agent=agent)
        events_of_late_reader = await read_recorded(suite, events[-1]["runId"])
        files = suite.tools.files
        text = f"Here it is.\n\n{link(suite.chat_id, 'image.png')}"
    assert (read_text(events), read_text(events_of_late_reader)) == (text, text)
    assert files == {"outputs/image.png": b"png"}
    (artifact,) = [event for event in events if event["type"] == "artifact.publish"]
    assert (artifact["name"], artifact["mimeType"], artifact["sizeBytes"]) == ("image.png", "image/png", 3)
    assert artifact["url"] in text
    assert fold(events) == fold(events_of_late_reader)
    assert list_artifacts(events_of_late_reader) == ["image.png"]
    assert events[-1]["type"] == "run.complete"


async def test_an_answer_of_pictures_only_is_in_later_requests_as_links(serve: Serve) -> None:
    async with serve([*picture(), *picture(b"gif", "image/gif"), *finish()], answer("Yes.")) as suite:
        events = await suite.ask()
        await suite.ask("another one")
        (earlier,) = [message for message in suite.llm.requests[-1].messages if message.role == "assistant"]
    assert list_artifacts(events) == ["image.png", "image.gif"]
    assert read_text(events) == f"{link(suite.chat_id, 'image.png')}\n\n{link(suite.chat_id, 'image.gif')}"
    assert "".join(part.text for part in earlier.content) == read_text(events)


async def test_a_sound_becomes_a_link_after_its_transcript(serve: Serve) -> None:
    async with serve([*content("Good day."), *picture(b"RIFF", "audio/wav"), *finish()]) as suite:
        events = await suite.ask()
    assert read_text(events).startswith("Good day.\n\n[sound.wav](/api/resource?")
    assert list_artifacts(events) == ["sound.wav"]


async def test_a_picture_next_to_a_call_is_committed_before_the_call_runs(serve: Serve) -> None:
    async with serve([*content("See."), *picture(), *call("look"), *finish("tool_calls")], answer("So.")) as suite:
        events = await suite.ask()
        events_of_late_reader = await read_recorded(suite, events[-1]["runId"])
    kinds = [event["type"] for event in events]
    assert kinds.index("artifact.publish") < kinds.index("tool.result")
    assert fold(events) == fold(events_of_late_reader)


async def test_an_answer_with_an_output_format_has_artifacts_but_no_links(serve: Serve) -> None:
    async with serve([*content("{}"), *picture(), *finish()]) as suite:
        events = await suite.ask(output_format=FORM)
    assert (read_text(events), events[-1]["output"], list_artifacts(events)) == ("{}", {}, ["image.png"])


async def test_a_picture_that_cannot_be_stored_is_reported(serve: Serve) -> None:
    async with serve(
        [*content("Here."), *picture(), *omitted_media("a picture is larger than 10 MiB"), *finish()]
    ) as suite:
        suite.tools.upload_error = QuotaExceeded("the workspace is full")
        events = await suite.ask()
    assert (read_text(events), events[-1]["type"], list_artifacts(events)) == ("Here.", "run.complete", [])
    assert list_notices(events) == [
        ("MEDIA_LEFT_OUT", "image.png could not be kept: the workspace is full"),
        ("MEDIA_LEFT_OUT", "a picture is larger than 10 MiB"),
    ]


TURNS = (call_tool("look"), ANSWER)


def find_result(suite: Suite) -> llm_pb2.Message:
    (result,) = [message for message in suite.llm.requests[-1].messages if message.role == "tool"]
    return result


async def test_a_model_with_vision_gets_the_images_of_a_result_along_with_its_text(serve: Serve) -> None:
    async with serve(*TURNS) as suite:
        give_pictures(suite, "tools", "vision", a=GIF, b=GIF + b"b")
        events = await ask(suite)
        text, *images = find_result(suite).content
        logged = (await suite.client.chat(suite.chat_id)).SerializeToString()
    assert text.text == "[image/gif]"
    assert [(part.image.data, part.image.mime_type) for part in images] == [
        (GIF, "image/gif"),
        (GIF + b"b", "image/gif"),
    ]
    assert [event["result"] for event in events if event["type"] == "tool.result"] == ["[image/gif]"]
    assert GIF not in logged


@pytest.mark.parametrize("capabilities", [(), ("tools",)], ids=["unknown", "blind"])
async def test_other_models_get_only_the_text_of_a_result(serve: Serve, capabilities: tuple[str, ...]) -> None:
    async with serve(*TURNS) as suite:
        give_pictures(suite, *capabilities, a=GIF)
        await ask(suite)
        assert [part.text for part in find_result(suite).content] == ["[image/gif]"]


async def test_a_file_that_is_no_picture_too_large_or_missing_is_not_sent(serve: Serve) -> None:
    async with serve(*TURNS) as suite:
        give_pictures(suite, "vision", a=b"text", b=GIF + bytes(10 * 1024 * 1024), c=GIF)
        suite.tools.plays["look"][0][0].result.shown_paths.append("outputs/gone.gif")  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType] - a delta
        await ask(suite)
        assert [part.image.data for part in find_result(suite).content[1:]] == [GIF]


async def test_a_sound_is_sent_only_to_models_with_audio(serve: Serve) -> None:
    wave = b"RIFF\x24\0\0\0WAVEfmt "
    async with serve(*TURNS) as suite:
        give_pictures(suite, "tools", "audio", a=wave, b=GIF)
        await ask(suite)
        (shown,) = find_result(suite).content[1:]
    assert shown.audio == llm_pb2.AudioPart(data=wave, mime_type="audio/wav")


async def test_a_file_that_cannot_be_read_is_not_sent(serve: Serve) -> None:
    async with serve(*TURNS) as suite:
        give_pictures(suite, "vision", a=GIF)
        suite.tools.breaking.add("ReadFile")
        events = await ask(suite)
        assert [part.text for part in find_result(suite).content] == ["[image/gif]"]
    assert events[-1]["type"] == "run.complete"
