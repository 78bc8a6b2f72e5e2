"""Before the first turn: offered tools, mentions, skills, uploads, and reminders for the model."""

import asyncio
import json
from typing import Any

import pytest

from headrace.errors import InvalidRequest
from headrace.v1 import agent_pb2, common_pb2, memory_pb2, tools_pb2
from tests.support.orchestrator import CHAT, Serve, Suite, ask, assert_paired, reminder, shown, submits, tool
from tests.support.orchestrator.events import as_json, list_notices, only
from tests.support.orchestrator.steps import ANSWER, call_tool, content, finish
from tests.support.order import Event
from tests.support.waiting import wait_until


def read_system_prompt(suite: Suite) -> str:
    return suite.llm.requests[-1].messages[0].content[0].text


def offer(suite: Suite) -> None:
    suite.tools.tools += [
        tool("deep", "backend", tier="discovered", after_call_hint="cite it"),
        tool("grep", "backend", tier="core"),
        tool("fetch", "backend", tier="enabled"),
        tool("remember", "backend", tier="discovered", always_available=True),
        tool("gone", "backend", tier="enabled", unavailable="no sandbox"),
    ]


async def test_a_tier_offers_its_tools_and_always_available_tools_are_always_offered(serve: Serve) -> None:
    async with serve(ANSWER, toolConfig={"backends": ["@enabled"]}) as suite:
        offer(suite)
        await ask(suite)
        assert shown(suite) == {"fetch", "remember"}
    async with serve(ANSWER, toolConfig={"backends": ["@core", "look"]}) as suite:
        offer(suite)
        await ask(suite)
        assert shown(suite) == {"grep", "todo_write", "todo_read", "ask_human", "look", "remember"}


async def test_an_agent_that_may_use_no_tools_is_offered_none(serve: Serve) -> None:
    async with serve(ANSWER, toolPolicy="DISALLOW") as suite:
        offer(suite)
        await ask(suite, message="@deep")
        assert shown(suite) == set()
    async with serve(ANSWER, react={"toolConfig": None}) as suite:
        offer(suite)
        await ask(suite, message="@deep")
        assert shown(suite) == set()


async def test_a_mentioned_tool_is_offered_in_this_run_and_the_message_is_unchanged(serve: Serve) -> None:
    message = "请用@Deep查\n\n a@look.com "
    async with serve(ANSWER, mentionable=["deep"]) as suite:
        offer(suite)
        events = await ask(suite, message=message)
        assert "deep" in shown(suite)
        assert "cite it" in read_system_prompt(suite)
        assert "The user asks for these tools: deep." in reminder(suite)
        user_message = next(message for message in suite.llm.requests[0].messages if message.role == "user")
        assert user_message.content[0].text == message
        await ask(suite, message="again")
        assert "deep" not in shown(suite)
        assert reminder(suite) == ""
    assert list_notices(events) == []
    assert only(events, "request.query")["message"] == message


@pytest.mark.parametrize(
    "query",
    [
        {"message": "@deep"},
        {"message": "hello", "params": '{"persistentTools": ["Deep"]}'},
        {"message": "> @fetch\n`@fetch`\n```\n@fetch\n``` @deep"},
    ],
)
async def test_a_tool_the_agent_does_not_allow_is_not_offered_and_a_notice_says_so(
    serve: Serve, query: dict[str, str]
) -> None:
    async with serve(ANSWER, mentionable=["@enabled"]) as suite:
        offer(suite)
        events = await ask(suite, **query)
        assert shown(suite) & {"deep", "fetch"} == set()
    [(reason, text)] = list_notices(events)
    assert (reason, text.casefold()) == (
        "TOOL_UNAVAILABLE",
        "tool 'deep' cannot be used: neither toolconfig nor mentionable of the agent names it",
    )


@pytest.mark.parametrize(("from_program", "visible"), [(True, set[str]()), (False, {"fetch"})])
async def test_messages_from_programs_mention_nothing(serve: Serve, from_program: bool, visible: set[str]) -> None:
    async with serve(ANSWER, mentionable=["fetch"]) as suite:
        offer(suite)
        events = await ask(suite, message="@fetch and @nobody", from_program=from_program)
        assert shown(suite) & {"fetch"} == visible
    assert len(list_notices(events)) == len(visible)


async def test_a_mentioned_agent_that_is_not_allowed_cannot_be_called(serve: Serve) -> None:
    async with serve(ANSWER, mentionable=["fetch"]) as suite:
        events = await ask(suite, message="@oneshot")
        assert "call_subagent" not in shown(suite)
    [(reason, text)] = list_notices(events)
    assert (reason, "'oneshot' cannot be called" in text) == ("AGENT_UNAVAILABLE", True)


async def test_unknown_mentions_are_reported_to_the_user(serve: Serve) -> None:
    async with serve(ANSWER, mentionable=["oneshot"]) as suite:
        events = await ask(suite, message="@nobody and @oneshot and @nothing")
        assert "The user asks for these agents: oneshot." in reminder(suite)
    assert list_notices(events) == [("UNKNOWN_MENTION", "no tool, skill or agent has the name @nobody, @nothing")]


async def test_persistent_tools_in_the_chats_state_are_offered(serve: Serve) -> None:
    async with serve(ANSWER, mentionable=["deep"]) as suite:
        offer(suite)
        await ask(suite)
        state = memory_pb2.UpdateStateRequest(chat_id=CHAT, state='{"persistent_tools":["deep"]}')
        await suite.memory.UpdateState(state, None)
        await ask(suite)
        assert "deep" in shown(suite)


async def test_a_query_may_set_the_persistent_tools_of_the_chat(serve: Serve) -> None:
    async with serve(ANSWER, mentionable=["deep"]) as suite:
        offer(suite)
        await ask(suite, params='{"persistentTools":["deep"],"theme":"dark"}')
        await ask(suite)
        assert "deep" in shown(suite, 0)
        assert "deep" in shown(suite)
        await ask(suite, params='{"persistentTools":[]}')
        assert "deep" not in shown(suite)


async def test_missing_skills_and_agents_of_a_definition_are_reported_to_the_user(serve: Serve) -> None:
    async with serve(ANSWER, skills=["pdf", "lost"], subagents=["oneshot", "nobody"]) as suite:
        suite.tools.skills = SKILLS
        events = await ask(suite)
    assert list_notices(events) == [
        ("SKILL_UNAVAILABLE", "there is no skill 'lost'; the agent continues without it"),
        ("AGENT_UNAVAILABLE", "there is no agent 'nobody'; it cannot be called"),
    ]


async def test_the_notice_of_a_missing_mcp_tool_names_its_server(serve: Serve) -> None:
    async with serve(ANSWER, toolConfig={"backends": ["mill__grind", "grind"]}) as suite:
        events = await ask(suite)
    assert [text for _, text in list_notices(events)] == [
        "there is no tool 'mill__grind', or its MCP server 'mill' is not connected; the agent continues without it",
        "there is no tool 'grind'; the agent continues without it",
    ]


async def test_a_required_tool_that_is_missing_fails_the_run_without_a_model_call(serve: Serve) -> None:
    async with serve(ANSWER, toolPolicy="REQUIRE", toolConfig={"backends": ["gone"]}) as suite:
        events = await ask(suite)
        assert suite.llm.requests == []
    assert events[-1]["error"]["code"] == "TOOL_REQUIRED"
    assert "no tool is in force" in events[-1]["error"]["message"]


SKILLS = [
    tools_pb2.Skill(id="pdf", name="PDF", description="Reads PDFs", file_types=["pdf"], path="skills/pdf/SKILL.md"),
    tools_pb2.Skill(id="chart", name="Chart", description="Draws", path="skills/chart/SKILL.md"),
    tools_pb2.Skill(id="broken", name="Broken", description="Fails", path="skills/broken/SKILL.md"),
]


async def test_skills_are_described_and_linked_when_mentioned(serve: Serve) -> None:
    async with serve(ANSWER) as suite:
        suite.tools.skills = SKILLS
        events = await ask(suite, message="@chart then @broken")
        assert suite.tools.linked == ["chart", "broken"]
        assert "- Chart: Draws (skills/chart/SKILL.md)" in read_system_prompt(suite)
        assert "- PDF: Reads PDFs (not in the workspace until the user writes @pdf)" in read_system_prompt(suite)
        assert "before you use them: Chart (skills/chart/SKILL.md, its Python: skills/chart/python)" in reminder(suite)
    assert [code for code, _ in list_notices(events)] == ["SKILL_UNAVAILABLE"]


async def test_calls_to_the_tools_service_before_the_first_turn_are_retried(serve: Serve) -> None:
    async with serve(ANSWER, skills=["pdf"]) as suite:
        suite.tools.skills = SKILLS
        suite.tools.breaking = {"ListTools", "ListSkills", "LinkSkill"}
        events = await ask(suite)
        assert not suite.tools.breaking
        assert suite.tools.linked == ["pdf"]
        assert "look" in shown(suite)
    assert not list_notices(events)
    assert events[-1]["type"] == "run.complete"


async def test_an_agents_list_of_skills_links_them_and_hides_the_others(serve: Serve) -> None:
    async with serve(ANSWER, skills=["pdf"]) as suite:
        suite.tools.skills = SKILLS
        events = await ask(suite, message="@chart")
        assert suite.tools.linked == ["pdf"]
        assert "Chart" not in read_system_prompt(suite)
    assert list_notices(events)[0][0] == "UNKNOWN_MENTION"


def upload(name: str, kind: str, mime_type: str, size_bytes: int) -> common_pb2.Reference:
    meta = json.dumps({"path": f"uploads/{name}"})
    given: dict[str, Any] = {"id": name, "type": kind, "name": name, "mime_type": mime_type, "size_bytes": size_bytes}
    return common_pb2.Reference(meta=meta, **given)


NOTES, PICTURE = upload("my notes.txt", "text", "text/plain", 5), upload("a.png", "image", "image/png", 4)
BOOK = upload("book.pdf", "pdf", "application/pdf", 5_000_000)
THERE = {"uploads/my notes.txt": b"hello", "uploads/a.png": b"\x89PNG", "uploads/book.pdf": b"%PDF"}


async def test_small_texts_and_images_are_sent_and_other_uploads_are_named(serve: Serve) -> None:
    async with serve(call_tool("look"), ANSWER) as suite:
        suite.tools.files = THERE
        suite.tools.skills = SKILLS
        await ask(suite, message='look at #"my notes.txt"', references=[NOTES, PICTURE, BOOK])
        assert suite.tools.linked == ["pdf"], "an upload links the skill for its file type"
        for request in suite.llm.requests:
            assert_paired(request)
            parts = [part for message in request.messages if message.role == "user" for part in message.content]
            assert "[File: my notes.txt]\nhello" in [part.text for part in parts]
            [image] = [part.image for part in parts if part.HasField("image")]
            assert (image.data, image.mime_type) == (b"\x89PNG", "image/png")
        text = reminder(suite, 0)
        assert "Uploaded files: 3." in text
        assert '1. "uploads/my notes.txt": text, 5 bytes; read with: read_file' in text
        assert '3. "uploads/book.pdf": pdf, 5000000 bytes' in text
        assert "refers to these files: uploads/my notes.txt." in text
        await ask(suite, message="and #book.pdf?")
        assert "refers to these files: uploads/book.pdf." in reminder(suite)
        assert str(suite.llm.requests[-1]).count("Uploaded files: 3.") == 1, "uploads are listed once"
        assert not any(
            part.HasField("image") for message in suite.llm.requests[-1].messages for part in message.content
        )


def list_uploads(events: list[Event]) -> list[Event]:
    return [event for event in events if event["type"] == "request.upload"]


async def test_each_upload_is_an_event_of_the_first_run_that_refers_to_it(serve: Serve) -> None:
    async with serve(ANSWER, ANSWER) as suite:
        suite.tools.files = THERE
        first = await ask(suite, request_id="q-1", references=[NOTES, BOOK, NOTES])
        second = await ask(suite, references=[BOOK, PICTURE])
        history = [as_json(event) for event in (await suite.client.chat(suite.chat_id)).events]
    assert [event["type"] for event in first[:6]] == [
        "request.query", "chat.start", "run.start", "request.upload", "request.upload", "content.start",
    ]  # fmt: skip
    notes, book = list_uploads(first)
    assert (notes["requestId"], notes["chatId"]) == ("q-1", suite.chat_id)
    assert notes["upload"] == {"type": "text", "name": "my notes.txt", "sizeBytes": 5, "mimeType": "text/plain"}
    assert book["upload"]["name"] == "book.pdf"
    assert [event["upload"]["name"] for event in list_uploads(second)] == ["a.png"]
    assert list_uploads(history) == [*list_uploads(first), *list_uploads(second)]


async def test_a_missing_file_is_reported_to_user_and_model(serve: Serve) -> None:
    async with serve(ANSWER) as suite:
        suite.tools.files = {"uploads/a.png": b"\x89PNG", "made/chart.svg": b"<svg/>"}
        message = 'compare #chart.svg, #a.png, #gone.csv and #"no ending" with issue #12 and #topic'
        events = await ask(suite, message=message, references=[NOTES, PICTURE])
        ((code, notice),) = list_notices(events)
        assert code == "FILE_MISSING"
        assert notice.startswith("this chat has no file 'my notes.txt', 'gone.csv', 'no ending';")
        text = reminder(suite)
    assert [event["upload"]["name"] for event in list_uploads(events)] == ["a.png"]
    assert "Uploaded files: 1." in text
    assert "refers to these files: made/chart.svg, uploads/a.png." in text
    assert 'which are not there; say so: "my notes.txt", "gone.csv", "no ending".' in text


async def test_prompts_name_the_files_of_the_workspace(serve: Serve) -> None:
    prompt = "Names:\n{{fileNameDesc}}\nFiles:\n{{files}}\nEnd"
    async with serve(ANSWER, ANSWER, react={"systemPrompt": prompt}) as suite:
        suite.tools.files = THERE | {"made/chart\n.svg": b"", "skills/pdf/SKILL.md": b""}
        await ask(suite, references=[NOTES, common_pb2.Reference(id="y", name="page", url="https://example.com")])
        names, files = read_system_prompt(suite).removeprefix("Names:\n").partition("\nEnd")[0].split("\nFiles:\n")
        suite.tools.lists_files = False
        await ask(suite)
        assert "Names:\nuploads/my notes.txt\nFiles" in read_system_prompt(suite)
    expected = ['"made/chart\\n.svg"', "uploads/a.png", "uploads/book.pdf", "uploads/my notes.txt", "page"]
    assert names.splitlines() == files.splitlines() == expected


async def test_an_upload_that_cannot_be_read_is_still_named(serve: Serve) -> None:
    async with serve(ANSWER) as suite:
        suite.tools.lists_files = False
        events = await ask(suite, references=[NOTES])
        assert "uploads/my notes.txt" in reminder(suite)
    assert events[-1]["type"] == "run.complete"


async def test_a_reference_that_is_not_an_upload_is_not_read(serve: Serve) -> None:
    odd = [common_pb2.Reference(id="x", name="x", meta=meta) for meta in ('{"path":"/etc/passwd"}', "[]", '{"path":1}')]
    async with serve(ANSWER) as suite:
        suite.tools.files = {"/etc/passwd": b"root"}
        await ask(suite, references=odd)
        assert reminder(suite) == ""


TODOS = [
    {"content": "one", "status": "completed"},
    {"content": "two", "status": "in_progress"},
    {"content": "three", "status": "pending"},
    {"content": "four", "status": "pending"},
]


async def test_open_todos_are_reminders_and_each_request_extends_the_previous_one(serve: Serve) -> None:
    def write(todos: Any, call_id: str) -> Any:
        return call_tool("todo_write", json.dumps({"todos": todos}), call_id=call_id)

    all_done = [todo | {"status": "completed"} for todo in TODOS]
    turns = [write(TODOS, "a"), write(all_done, "b"), ANSWER]
    async with serve(*turns, toolConfig={"backends": ["todo_write"]}) as suite:
        await ask(suite)
        assert [reminder(suite, turn) for turn in range(3)] == [
            "",
            "<system_reminder>\nYour todos: current: two; next: three; 1 more after that. Finish all before stopping."
            "\n</system_reminder>",
            "<system_reminder>\nYour todos: all 4 done.\n</system_reminder>",
        ]
        first, second, third = (list(request.messages) for request in suite.llm.requests)
        assert second[: len(first)] == first
        assert third[: len(second)] == second


async def test_tools_and_models_are_listed_while_the_query_is_being_stored(serve: Serve) -> None:
    listed = asyncio.Event()

    async def listing() -> None:
        assert not listed.is_set(), "tools are listed once"
        listed.set()

    async def stored(request: memory_pb2.AppendRequest) -> None:
        await listed.wait()
        await wait_until(lambda: suite.llm.models_asked)

    async with serve(ANSWER) as suite:
        suite.tools.listing, suite.memory.before = listing, stored
        assert (await ask(suite))[-1]["type"] == "run.complete"
        assert suite.llm.models_asked == 1


@pytest.mark.parametrize("message", ["hello", "Look at @nothing"])
async def test_the_model_is_called_only_after_the_query_is_stored(serve: Serve, message: str) -> None:
    async def stored(request: memory_pb2.AppendRequest) -> None:
        if request.lines[0].HasField("query"):
            while not suite.memory.loads and message == "hello":
                await asyncio.sleep(0.005)
            await asyncio.sleep(0.05)
            assert not suite.llm.requests, "no model is asked before the query is accepted"

    async with serve(ANSWER, ANSWER) as suite:
        suite.memory.before = stored
        for number in (1, 2):
            events = await ask(suite, message=message)
            assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
            assert events[0]["type"] == "request.query"
            assert events[-1]["type"] == "run.complete"
            texts = [part.text for part in suite.llm.requests[0].messages[-1].content]
            assert message in texts, number
            suite.llm.requests.clear()
            suite.memory.loads.clear()


async def test_a_refused_query_cancels_its_pending_calls(serve: Serve) -> None:
    is_asked, open_questions = asyncio.Event(), 0

    async def listing() -> None:
        nonlocal open_questions
        open_questions += 1
        is_asked.set()
        try:
            await asyncio.sleep(3600)
        finally:
            open_questions -= 1

    async def refused(request: memory_pb2.AppendRequest) -> None:
        await is_asked.wait()
        raise InvalidRequest("not this one")

    async with serve(ANSWER) as suite:
        suite.tools.listing, suite.memory.before = listing, refused
        with pytest.raises(InvalidRequest):
            await suite.ask()
        await wait_until(lambda: not open_questions)


LOCATE = agent_pb2.ClientTool(
    name="locate",
    description="Where the user is",
    parameters='{"type":"object","properties":{"precision":{"type":"integer"}},"additionalProperties":false}',
)
TURNS = [call_tool("locate", '{"precision": 2}'), [*content("You are in Lyon."), *finish()]]


async def test_a_client_tool_is_offered_only_in_its_run_and_returns_the_submitted_payload(serve: Serve) -> None:
    async with serve(*TURNS) as suite:
        events = await ask(suite, ("tool.start", submits(suite, {"city": "Lyon"})), client_tools=[LOCATE])
        await ask(suite)
    start, result = only(events, "tool.start"), only(events, "tool.result")
    assert (start["toolName"], start["toolType"], start["toolApi"]) == ("locate", "frontend", "client")
    assert "viewportKey" not in start
    assert (json.loads(result["result"]), result["ok"]) == ({"city": "Lyon"}, True)
    assert [schema.name for schema in suite.llm.requests[0].tools][-1] == "locate"
    assert events[-1]["type"] == "run.complete"
    assert "locate" not in [schema.name for schema in suite.llm.requests[-1].tools]


@pytest.mark.parametrize(
    ("tool", "field"),
    [
        (agent_pb2.ClientTool(name="Look"), "clientTools[1].name"),
        (agent_pb2.ClientTool(name="LOCATE"), "clientTools[1].name"),
        (agent_pb2.ClientTool(name="_plan_add_tasks_"), "clientTools[1].name"),
        (agent_pb2.ClientTool(name="odd", parameters='{"type":"thing"}'), "clientTools[1].parameters"),
    ],
)
async def test_a_client_tool_with_a_taken_name_or_invalid_schema_is_refused(
    serve: Serve, tool: agent_pb2.ClientTool, field: str
) -> None:
    async with serve(*TURNS) as suite:
        events = await ask(suite, client_tools=[LOCATE, tool])
    assert events[-1]["type"] == "run.error"
    assert events[-1]["error"]["code"] == "INVALID_REQUEST"
    assert events[-1]["error"]["details"]["field"] == field
    assert not suite.llm.requests
