"""The output of each reader of a run: the facade's routes, read over sockets, and our own clients."""

import io
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, TypeAlias

from rich.console import Console

from headrace.a2a import a2a_pb2, a2a_pb2_grpc
from headrace.cli.run_view.plain_view import PlainView
from headrace.cli.run_view.run_display import RunDisplay
from headrace.cli.run_view.terminal_view import TerminalView
from headrace.cli.run_view.view import View
from headrace.run_stream import RunStream
from headrace.runs.fold import fold_events
from headrace.sse import SseReader
from headrace.v1 import agent_pb2
from services.facade.a2a.protocol import CURSOR
from services.facade.mcp_server.protocol import META_CAPABILITIES, META_VERSION, MODERN, TASKS
from services.runtime.rpc.channels import open_channel
from tests.facade.recorded.recorded_run import BEGAN_AT_MS, CHAT, RUN, RecordedRun
from tests.support.facade.mcp import HEADERS
from tests.support.facade.openai_api import FUNCTION
from tests.support.facade.scripted import Script, Step, Suite
from tests.support.folds import describe_fold

PUBLISH = ("ag-ui", "a2a", "mcp")
LEAVING_S = 1.0
"""How long a run's stream stays open after its last event; readers leave a run that waits before."""

STATE = '{"n":1,"a/b":[2]}'
"""The session state, which AG-UI has."""

Reader: TypeAlias = Callable[[Suite, RecordedRun], Awaitable[bytes]]


def script_run(script: Script, run: RecordedRun, *, last_seq: int | None = None) -> None:
    """Script the orchestrator to send the run: live to Query; to Attach after `last_seq`, or live if that is None."""
    live: list[Step] = [*run.deltas, LEAVING_S]
    again: list[Step] = live if last_seq is None else [*run.tell_again(last_seq), LEAVING_S]
    script.query, script.attaches = live, [again]
    script.run = agent_pb2.Run(
        run_id=RUN, chat_id=CHAT, agent_key="helper", state=run.state, created_at=BEGAN_AT_MS, updated_at=BEGAN_AT_MS
    )
    script.runs = [script.run]


async def _post(facade: Suite, path: str, body: Any, **headers: str) -> bytes:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    async with facade.http.post(path, json=body, headers=given) as response:
        return _join(response.status, response.content_type, await response.read(), facade)


async def _get(facade: Suite, path: str) -> bytes:
    async with facade.http.get(path) as response:
        return _join(response.status, response.content_type, await response.read(), facade)


def _join(status: int, content_type: str, body: bytes, facade: Suite) -> bytes:
    return b"%d %b\n%b" % (status, content_type.encode(), body.replace(facade.url.encode(), b"http://facade"))


async def read_sse(facade: Suite, run: RecordedRun) -> bytes:
    script_run(facade.script, run)
    return await _post(facade, "/api/query", {"message": "hi"})


async def read_sse_again(facade: Suite, run: RecordedRun) -> bytes:
    script_run(facade.script, run, last_seq=run.middle_seq)
    return await _get(facade, f"/api/attach?runId={RUN}&lastSeq={run.middle_seq}")


async def read_json(facade: Suite, run: RecordedRun) -> bytes:
    script_run(facade.script, run)
    return await _post(facade, "/api/query", {"message": "hi", "stream": False})


def _ask_chat(*messages: Any, **fields: Any) -> dict[str, Any]:
    all_messages = [{"role": "user", "content": "hi"}, *messages]
    functions = {"tools": [{"type": "function", "function": FUNCTION}]}
    return {"model": "helper", "messages": all_messages, "metadata": {"from": "tests"}} | functions | fields


async def read_completion(facade: Suite, run: RecordedRun) -> bytes:
    script_run(facade.script, run)
    return await _post(facade, "/v1/chat/completions", _ask_chat())


async def read_chunks(facade: Suite, run: RecordedRun) -> bytes:
    script_run(facade.script, run)
    return await _post(facade, "/v1/chat/completions", _ask_chat(stream=True, stream_options={"include_usage": True}))


async def read_chunks_in_a_form(facade: Suite, run: RecordedRun) -> bytes:
    """Read an answer that must be JSON, which the facade holds back until it is complete."""
    script_run(facade.script, run)
    return await _post(facade, "/v1/chat/completions", _ask_chat(stream=True, response_format={"type": "json_object"}))


async def read_chunks_after_results(facade: Suite, run: RecordedRun) -> bytes:
    """Read the rest as a caller that sends a function's result and has the first half of the run."""
    script_run(facade.script, run, last_seq=run.middle_seq)
    # call_ids.CallId's form: the run, the call and the last event.
    call_id = f"call_{RUN.replace('-', '')}_0000000a_{run.middle_seq}"
    call = {"id": call_id, "type": "function", "function": {"name": "thermometer", "arguments": "{}"}}
    assistant_message = {"role": "assistant", "content": None, "tool_calls": [call]}
    result = {"role": "tool", "tool_call_id": call_id, "content": "20"}
    return await _post(facade, "/v1/chat/completions", _ask_chat(assistant_message, result, stream=True))


def _follow(run: RecordedRun, facade: Suite, deltas: Sequence[agent_pb2.AgentDelta]) -> None:
    """Script the orchestrator to send the chat's events: this run, a compaction, and another agent's run."""
    script_run(facade.script, run)
    followed = [agent_pb2.FollowDelta(cursor=f"3.{delta.seq}", run_id=RUN, delta=delta) for delta in deltas]
    between = agent_pb2.AgentDelta(compaction_fail=agent_pb2.CompactionFail(chat_id=CHAT, reason="NOTHING_TO_COMPACT"))
    facade.script.follows = [[*followed, agent_pb2.FollowDelta(cursor="9.0", delta=between)], []]


async def read_chunks_followed(facade: Suite, run: RecordedRun) -> bytes:
    body = _ask_chat(stream=True, metadata={"chat_id": CHAT})
    del body["tools"]
    _follow(run, facade, run.deltas)
    whole = await _post(facade, "/v1/chat/completions", body, Last_Event_ID="0.0")
    _follow(run, facade, run.tell_again())
    return whole + await _post(facade, "/v1/chat/completions", body, Last_Event_ID=_find_middle_id(whole) or "0.0")


def _find_middle_id(answer: bytes) -> str:
    """Return the id of an event in the middle of a stream; empty where there is none."""
    reader = SseReader()
    frames = [*reader.feed(answer.partition(b"\n")[2]), *reader.finish()]
    ids = [frame.id for frame in frames if frame.id]
    return ids[len(ids) // 2] if ids else ""


def _ask_response(**fields: Any) -> dict[str, Any]:
    return {"model": "helper", "input": "hi", "tools": [{"type": "function"} | FUNCTION]} | fields


async def read_response(facade: Suite, run: RecordedRun) -> bytes:
    script_run(facade.script, run)
    return await _post(facade, "/v1/responses", _ask_response())


async def read_response_events(facade: Suite, run: RecordedRun) -> bytes:
    script_run(facade.script, run)
    return await _post(facade, "/v1/responses", _ask_response(stream=True))


async def read_response_again(facade: Suite, run: RecordedRun) -> bytes:
    script_run(facade.script, run, last_seq=0)
    path = f"/v1/responses/resp_{RUN.replace('-', '')}"
    return await _get(facade, path) + await _get(facade, f"{path}?stream=true&starting_after={run.middle_seq}")


def _ask_agui(**fields: Any) -> dict[str, Any]:
    return {"threadId": CHAT, "runId": "r-1", "messages": [{"id": "u", "role": "user", "content": "hi"}]} | fields


async def read_agui(facade: Suite, run: RecordedRun) -> bytes:
    """Read the run's stream, resume after an event in its middle, then answer its gate."""
    script_run(facade.script, run, last_seq=0)
    facade.memory.state = STATE
    first_answer = await _post(facade, "/agui/helper", _ask_agui())
    facade.script.query = facade.script.attaches[0]
    again = await _post(facade, "/agui/helper", _ask_agui(), Last_Event_ID=_find_middle_id(first_answer) or "1")
    interrupts = [
        {"interruptId": interrupt["id"], "status": "cancelled"}
        for event in _read_events(first_answer)
        for interrupt in event.get("outcome", {}).get("interrupts", [])
    ]
    if not interrupts:
        return first_answer + again
    return first_answer + again + await _post(facade, "/agui/helper", _ask_agui(resume=interrupts))


def _read_events(answer: bytes) -> list[Any]:
    reader = SseReader()
    frames = [*reader.feed(answer.partition(b"\n")[2]), *reader.finish()]
    return [json.loads(frame.data) for frame in frames]


async def read_agui_thread(facade: Suite, run: RecordedRun) -> bytes:
    facade.memory.state = STATE
    _follow(run, facade, run.deltas)
    whole = await _post(facade, "/agui/helper/connect", _ask_agui(messages=[]))
    _follow(run, facade, run.tell_again())
    cursor = _find_middle_id(whole) or "3.1"
    return whole + await _post(facade, "/agui/helper/connect", _ask_agui(messages=[]), Last_Event_ID=cursor)


def _call_a2a(method: str, params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


MESSAGE = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}}
WITH_CURSORS = {"A2A_Extensions": CURSOR}


async def read_a2a_stream(facade: Suite, run: RecordedRun) -> bytes:
    script_run(facade.script, run)
    return await _post(facade, "/a2a/helper", _call_a2a("SendStreamingMessage", MESSAGE), **WITH_CURSORS)


async def read_a2a_task(facade: Suite, run: RecordedRun) -> bytes:
    """Send a message, get its task, and answer it if it waits."""
    script_run(facade.script, run, last_seq=0)
    sent = await _post(facade, "/a2a/helper", _call_a2a("SendMessage", MESSAGE))
    found = await _post(facade, "/a2a/helper", _call_a2a("GetTask", {"id": RUN}))
    if run.state != "waiting":
        return sent + found
    reply = {"message": MESSAGE["message"] | {"taskId": RUN, "parts": [{"text": "no"}]}}
    return sent + found + await _post(facade, "/a2a/helper", _call_a2a("SendStreamingMessage", reply))


async def read_a2a_again(facade: Suite, run: RecordedRun) -> bytes:
    script_run(facade.script, run, last_seq=0)
    assert facade.script.run is not None
    facade.script.run.state = "running"
    subscribe = _call_a2a("SubscribeToTask", {"id": RUN})
    return await _post(facade, "/a2a/helper", subscribe, Last_Event_ID=str(run.middle_seq))


async def read_a2a_context(facade: Suite, run: RecordedRun) -> bytes:
    subscribe = _call_a2a("SubscribeToContext", {"contextId": CHAT})
    _follow(run, facade, run.deltas)
    whole = await _post(facade, "/a2a/helper", subscribe, **WITH_CURSORS)
    _follow(run, facade, run.tell_again())
    return whole + await _post(facade, "/a2a/helper", subscribe, Last_Event_ID=f"3.{run.middle_seq}", **WITH_CURSORS)


async def read_a2a_grpc(facade: Suite, run: RecordedRun) -> bytes:
    script_run(facade.script, run)
    async with facade.http.get("/a2a") as response:
        interfaces = [
            interface for card in (await response.json())["agentCards"] for interface in card["supportedInterfaces"]
        ]
    [address] = [interface["url"] for interface in interfaces if interface["protocolBinding"] == "GRPC"]
    part = a2a_pb2.Part(text="hi")
    message = a2a_pb2.Message(message_id="m", role=a2a_pb2.ROLE_USER, parts=[part])
    request = a2a_pb2.SendMessageRequest(tenant="helper", message=message)
    async with open_channel(address) as channel:
        stub: Any = a2a_pb2_grpc.A2AServiceStub(channel)
        call = stub.SendStreamingMessage(request, metadata=(("a2a-version", "1.0"),))
        try:
            events = [str(event) async for event in call]
            return "\n".join(events).encode()
        except Exception as error:
            return f"{type(error).__name__}: {error}".encode()


def _call_tool(**meta: Any) -> dict[str, Any]:
    params = {"name": "helper", "arguments": {"message": "hi"}, "_meta": {"progressToken": "p"} | meta}
    return {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}


def _declare(**capabilities: Any) -> dict[str, Any]:
    return {META_VERSION: MODERN, META_CAPABILITIES: capabilities}


async def read_mcp(facade: Suite, run: RecordedRun) -> bytes:
    script_run(facade.script, run)
    headers = {"MCP_Protocol_Version": MODERN, "Mcp_Method": "tools/call", "Mcp_Name": "helper"} | HEADERS
    return await _post(facade, "/mcp", _call_tool(**_declare(elicitation={})), **headers)


async def read_mcp_session(facade: Suite, run: RecordedRun) -> bytes:
    """Call as a client of a version with a handshake, whose user is asked in the call's stream."""
    script_run(facade.script, run)
    headers = {"MCP_Protocol_Version": "2025-06-18", "Mcp_Session_Id": f"hr-e-{'0' * 32}"} | HEADERS
    return await _post(facade, "/mcp", _call_tool(), **headers)


async def read_mcp_task(facade: Suite, run: RecordedRun) -> bytes:
    """Get the task as a client of the tasks extension, then its result as version 2025-11-25 does."""
    script_run(facade.script, run, last_seq=0)
    params = {"taskId": RUN, "_meta": _declare(elicitation={}, extensions={TASKS: {}})}
    body = {"jsonrpc": "2.0", "id": 7, "method": "tasks/get", "params": params}
    headers = {"MCP_Protocol_Version": MODERN, "Mcp_Method": "tasks/get", "Mcp_Name": RUN} | HEADERS
    state = await _post(facade, "/mcp", body, **headers)
    headers = {"MCP_Protocol_Version": "2025-11-25", "Mcp_Session_Id": f"hr-e-{'0' * 32}"} | HEADERS
    result_request = {"jsonrpc": "2.0", "id": 8, "method": "tasks/result", "params": {"taskId": RUN}}
    return state + await _post(facade, "/mcp", result_request, **headers)


def _show(view: View, events: Sequence[agent_pb2.AgentDelta]) -> None:
    display = RunDisplay(view)
    for event in events:
        display.show_event(event)


async def show_plain(_: Suite, run: RecordedRun) -> bytes:
    out = io.BytesIO()
    _show(PlainView(out), run.deltas)
    out.write(b"\n---\n")
    _show(PlainView(out), _cut(run))
    return out.getvalue()


async def show_in_terminal(_: Suite, run: RecordedRun) -> bytes:
    out = io.StringIO()
    for events in (run.deltas, _cut(run)):
        console = Console(file=out, force_terminal=True, width=80, color_system="standard", highlight=False)
        _show(TerminalView(console), events)
        out.write("\n---\n")
    return out.getvalue().encode()


def _cut(run: RecordedRun) -> list[agent_pb2.AgentDelta]:
    """Return the events of a reader that is cut off in the middle and attaches again."""
    return [*run.deltas[: len(run.deltas) // 2], *run.tell_again(run.middle_seq)]


async def fold_run(_: Suite, run: RecordedRun) -> bytes:
    folds = [describe_fold(fold_events(events)) for events in (run.deltas, run.tell_again(), _cut(run))]
    return json.dumps(folds, ensure_ascii=False, indent=1).encode()


async def read_text(_: Suite, run: RecordedRun) -> bytes:
    async def play(deltas: Sequence[agent_pb2.AgentDelta]) -> AsyncIterator[agent_pb2.AgentDelta]:
        for delta in deltas:
            yield delta

    remaining = [run.tell_again(run.middle_seq)]

    async def attach(_: str, __: int) -> AsyncIterator[agent_pb2.AgentDelta]:
        return play(remaining.pop() if remaining else [])

    pieces = [piece async for piece in RunStream(play(run.deltas)).text()]
    cut = RunStream(play(run.deltas[: len(run.deltas) // 2]), attach, reattach_s=0.001, run_id=RUN)
    return json.dumps([pieces, [piece async for piece in cut.text()]], ensure_ascii=False).encode()


READERS: dict[str, Reader] = {
    "sse": read_sse,
    "sse-again": read_sse_again,
    "json": read_json,
    "completion": read_completion,
    "chunks": read_chunks,
    "chunks-form": read_chunks_in_a_form,
    "chunks-results": read_chunks_after_results,
    "chunks-followed": read_chunks_followed,
    "response": read_response,
    "response-events": read_response_events,
    "response-again": read_response_again,
    "agui": read_agui,
    "agui-thread": read_agui_thread,
    "a2a-stream": read_a2a_stream,
    "a2a-task": read_a2a_task,
    "a2a-again": read_a2a_again,
    "a2a-context": read_a2a_context,
    "a2a-grpc": read_a2a_grpc,
    "mcp": read_mcp,
    "mcp-session": read_mcp_session,
    "mcp-task": read_mcp_task,
    "cli-plain": show_plain,
    "cli-terminal": show_in_terminal,
    "fold": fold_run,
    "text": read_text,
}
