"""Servers that request input during a call, in both versions: elicitation, sampling and roots; and resources."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from headrace.streams import reading
from headrace.v1 import common_pb2, tools_pb2
from tests.support.tools import calls
from tests.support.tools.asked_llm import USAGE, asked_llm
from tests.support.tools.mcp_http import PIXEL, Http, http_server
from tests.support.tools.mcp_suite import Suite, serving
from tests.support.tools.suite import CHAT
from tests.tools.mcp_client.asking_app import PAY_URL, make_asking_app

KEY = "run/call/1"
VERSIONS = pytest.mark.parametrize("is_legacy", [False, True], ids=["2026-07-28", "2025-11-25"])


@asynccontextmanager
async def asking(folder: Path, *, is_legacy: bool, **granted: Any) -> AsyncGenerator[tuple[Http, Suite]]:
    async with (
        http_server(make_app=make_asking_app, is_legacy=is_legacy) as http,
        serving(folder, {"s": {"url": http.url, **granted}}) as suite,
    ):
        await suite.until("s__book")
        yield http, suite


async def execute(
    suite: Suite, tool: str, arguments: dict[str, Any] | None = None, answers: Any = (), key: str = KEY
) -> list[tools_pb2.ToolDelta]:
    request = calls.request(tool, arguments or {}, effect_key=key, answers=answers)
    async with reading(suite.stub.Execute(request)) as deltas:
        return [delta async for delta in deltas]


async def book(suite: Suite, *answers: tools_pb2.InputAnswer) -> tools_pb2.ToolOutcome:
    return (await execute(suite, "s__book", {"table": "the window"}, answers))[-1].result


def accept(need: common_pb2.InputNeed, content: Any = None) -> tools_pb2.InputAnswer:
    given = None if content is None else json.dumps(content)
    return tools_pb2.InputAnswer(name=need.name, action="accept", content=given)


@VERSIONS
async def test_a_call_pauses_for_an_elicitation_and_continues_with_the_answer(
    tmp_path: Path, *, is_legacy: bool
) -> None:
    async with asking(tmp_path, is_legacy=is_legacy, elicitation=True) as (http, suite):
        paused = await book(suite)
        [need] = paused.asks
        assert (need.server, need.message) == ("s", "How many seats at the window?")
        assert json.loads(need.schema)["properties"]["seats"]["type"] == "integer"
        assert not need.HasField("url")
        assert await book(suite) == paused, "who executes it again without an answer is told the same"
        check = tools_pb2.CheckEffectRequest(effect_key=KEY, tool_name="s__book", chat_id=CHAT)
        assert (await suite.stub.CheckEffect(check)).state == "not_done", "so that a new owner of the run asks"
        assert http.effects == []
        booked = await book(suite, accept(need, {"seats": 4}))
        assert (booked.ok, booked.result) == (True, "booked the window for 4")
        assert await book(suite, accept(need, {"seats": 4})) == booked
        assert http.effects == ["the window: 4"]


@VERSIONS
async def test_declining_an_elicitation_ends_the_call_as_its_server_decides(tmp_path: Path, *, is_legacy: bool) -> None:
    async with asking(tmp_path, is_legacy=is_legacy, elicitation=True) as (http, suite):
        [need] = (await book(suite)).asks
        declined = await book(suite, tools_pb2.InputAnswer(name=need.name, action="decline"))
        assert (declined.ok, http.effects) == (False, [])
        assert "declin" in declined.result.casefold()


@VERSIONS
async def test_an_elicitation_can_send_the_user_to_a_url(tmp_path: Path, *, is_legacy: bool) -> None:
    async with asking(tmp_path, is_legacy=is_legacy, elicitation=True) as (_, suite):
        [need] = (await execute(suite, "s__pay"))[-1].result.asks
        assert (need.url, need.message, need.HasField("schema")) == (PAY_URL, "Pay the bill", False)
        paid = (await execute(suite, "s__pay", answers=[accept(need)]))[-1].result
        assert (paid.ok, paid.result) == (True, "paid: accept")


async def test_a_call_that_requires_a_url_visit_is_sent_again_after_it(tmp_path: Path) -> None:
    async with asking(tmp_path, is_legacy=True, elicitation=True) as (http, suite):
        [need] = (await execute(suite, "s__ship"))[-1].result.asks
        assert (need.url, need.message) == (PAY_URL, "Agree to the terms")
        shipped = (await execute(suite, "s__ship", answers=[accept(need)]))[-1].result
        assert (shipped.ok, shipped.result) == (True, "shipped")
        assert http.effects == ["asked to ship"] * 2
        http.effects.clear()
        [need] = (await execute(suite, "s__ship", key="k2"))[-1].result.asks
        declined = tools_pb2.InputAnswer(name=need.name, action="decline")
        assert not (await execute(suite, "s__ship", answers=[declined], key="k2"))[-1].result.ok
        assert http.effects == ["asked to ship"]


@VERSIONS
async def test_an_answer_after_a_restart_never_repeats_an_effect(tmp_path: Path, *, is_legacy: bool) -> None:
    async with http_server(make_app=make_asking_app, is_legacy=is_legacy) as http:
        entry = {"s": {"url": http.url, "elicitation": True}}
        async with serving(tmp_path, entry) as suite:
            await suite.until("s__book")
            [need] = (await book(suite)).asks
        async with serving(tmp_path, entry) as suite:
            await suite.until("s__book")
            [again] = (await book(suite)).asks
            assert again == need
            outcome = await book(suite, accept(need, {"seats": 2}))
        if is_legacy:  # its server worked on a call of a connection that has gone
            assert (outcome.ok, http.effects) == (False, [])
            assert "whether it took effect is not known" in outcome.result
        else:
            assert (outcome.ok, http.effects) == (True, ["the window: 2"])


@VERSIONS
async def test_requests_a_server_was_not_granted_are_refused(tmp_path: Path, *, is_legacy: bool) -> None:
    async with asking(tmp_path, is_legacy=is_legacy) as (http, suite):
        refused = [(await execute(suite, tool, {"table": "x"}))[-1].result for tool in ("s__book",)]
        refused += [(await execute(suite, tool, key=tool))[-1].result for tool in ("s__poem", "s__where")]
        assert [(outcome.ok, len(outcome.asks)) for outcome in refused] == [(False, 0)] * 3
        assert http.effects == []
        listed = await suite.tools()
        assert not any(tool.asks_model for tool in listed.values())
        assert "s__read_resource" not in listed


async def test_a_call_without_an_effect_key_asks_nobody(tmp_path: Path) -> None:
    async with asking(tmp_path, is_legacy=False, elicitation=True) as (http, suite):
        outcome = (await execute(suite, "s__book", {"table": "x"}, key=""))[-1].result
        assert (outcome.ok, len(outcome.asks), http.effects) == (False, 0, [])


@VERSIONS
async def test_sampling_stays_within_the_grant_and_is_charged_to_the_run(tmp_path: Path, *, is_legacy: bool) -> None:
    async with (
        asked_llm(["The sea, ", "the sea"]) as llm,
        http_server(make_app=make_asking_app, is_legacy=is_legacy) as http,
    ):
        entry = {"s": {"url": http.url, "sampling": {"maxTokens": 70, "calls": 1}}}
        async with serving(tmp_path, entry, llm_gateway_address=llm.address) as suite:
            await suite.until("s__poem")
            deltas = await execute(suite, "s__poem")
            assert (await suite.tools())["s__poem"].asks_model
    assert deltas[-1].result.result == "m: The sea, the sea (endTurn)"
    [model_request] = llm.requests
    assert (model_request.provider_key, model_request.model, model_request.max_tokens) == ("p", "m", 70)
    assert [(message.role, message.content[0].text) for message in model_request.messages] == [
        ("system", "You are a poet"),
        ("user", "A line on the sea, please"),
    ]
    assert calls.find_usage(deltas) == USAGE
    [notice] = [delta.sampling.message for delta in deltas if delta.HasField("sampling")]
    assert ("'s'" in notice, "100 tokens in" in notice) == (True, True)


@VERSIONS
async def test_roots_are_those_configured_in_the_file(tmp_path: Path, *, is_legacy: bool) -> None:
    roots = [{"uri": "file:///projects/blue", "name": "blue"}]
    async with asking(tmp_path, is_legacy=is_legacy, roots=roots) as (_, suite):
        outcome = (await execute(suite, "s__where"))[-1].result
        assert (outcome.ok, outcome.result) == (True, "blue=file:///projects/blue")


async def test_resources_are_listed_and_read(tmp_path: Path) -> None:
    async with asking(tmp_path, is_legacy=False, resources=True) as (_, suite):
        listed = json.loads((await execute(suite, "s__list_resources"))[-1].result.result)
        text = (await execute(suite, "s__read_resource", {"uri": "note://monday/list"}))[-1].result
        artifact, picture = await execute(suite, "s__read_resource", {"uri": "pixel://one"})
        absent = (await execute(suite, "s__read_resource", {"uri": "note://none"}))[-1].result
    assert {entry["uri"] for entry in listed["resources"]} == {"note://one", "pixel://one"}
    assert [entry["uri"] for entry in listed["templates"]] == ["note://{day}/list"]
    assert (text.ok, text.result) == (True, "[note://monday/list]\nthe notes of monday")
    assert (artifact.artifact.size_bytes, artifact.artifact.mime_type) == (len(PIXEL), "image/png")
    assert picture.result.shown_paths == [f"outputs/{artifact.artifact.name}"]
    assert not absent.ok
