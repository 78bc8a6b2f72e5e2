"""GetCassette: the recording of an ended run, in pages of lines."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Collection

from headrace.errors import InvalidRequest, NotFound
from headrace.v1 import agent_pb2, memory_pb2
from services.orchestrator.peers import stored_runs
from services.orchestrator.peers.stubs import Peers
from services.runtime.auth.identity import require_identity

PAGE_BYTES = 1024 * 1024

_EMPTIED: dict[bytes, dict[str, object]] = {
    b'{"agent":': {"definition": {}},
    b'{"mode":': {"source": ""},
    b'{"file":': {"text": ""},
}
"""The operator's content in a cassette (docs/reference/cassette.md): prefix of the line, and the fields that replace
its content for other callers."""

WHY = {
    "TOO_LARGE": "it heard and said more than 16 MiB",
    "TAKEN_OVER": "another process has gone on with it",
    "NOT_STORED": "memory did not take the recording",
    "REMOTE": "a remote agent has answered, whom a replay cannot ask: record the agents that ask models",
    "ROUTED": "the router has picked its agent: name the agent in the query",
}


async def get_cassette(peers: Peers, request: agent_pb2.GetCassetteRequest) -> agent_pb2.GetCassetteResponse:
    """Return one page. Raises NotFound without a recording, InvalidRequest if the run has not ended or the token is
    wrong."""
    wanted = memory_pb2.GetChatRequest(run_id=request.run_id, include_lines=True)
    chat = await stored_runs.get_chat(peers, wanted)
    if not chat.events:
        raise stored_runs.make_run_reverted(request.run_id)
    # The recording holds content that only its user may see, such as facts recalled from memory.
    if any(
        event.request_query.by != require_identity().user for event in chat.events if event.HasField("request_query")
    ):
        raise NotFound(f"run {request.run_id} does not exist", runId=request.run_id)
    end = next((line.run for line in chat.lines if line.HasField("run")), None)
    if end is None:
        raise InvalidRequest.of("runId", "must be a run that has ended")
    if not end.recording:
        why = "was not recorded: ask with record, or put record: true into the agent's file"
        if problem := end.recording_problem:
            why = f"has no recording: {WHY.get(problem, problem)}"
        raise NotFound(f"run {request.run_id} {why}", runId=request.run_id)
    blob = await peers.memory.GetBlob(memory_pb2.GetBlobRequest(chat_id=chat.chat_id, blob_id=end.recording))
    lines = (await asyncio.to_thread(gzip.decompress, blob.data)).splitlines()
    if "operate" not in (scopes := require_identity().scopes):
        lines = [_withhold(line, scopes) for line in lines]
    token = request.page_token
    if token and not (token.isascii() and token.isdigit() and 0 < int(token) < len(lines)):
        raise InvalidRequest.of("pageToken", "must be the nextPageToken of an answer")
    return _make_page(lines, int(token or 0))


def _withhold(line: bytes, scopes: Collection[str]) -> bytes:
    """Return a line without the operator's content, and without the tenant's own if the caller may not read that
    either."""
    emptied = next((left for beginning, left in _EMPTIED.items() if line.startswith(beginning)), None)
    if emptied is None:
        return line
    given = json.loads(line)
    scope = "publish" if given.get("isTenants") else "operate"
    if scope in scopes:
        return line
    return json.dumps(given | emptied | {"withheld": scope}, separators=(",", ":")).encode()


def _make_page(lines: list[bytes], first: int) -> agent_pb2.GetCassetteResponse:
    size, last = 0, first
    while last < len(lines) and (last == first or size + len(lines[last]) <= PAGE_BYTES):
        size += len(lines[last])
        last += 1
    return agent_pb2.GetCassetteResponse(
        lines=[line.decode() for line in lines[first:last]], next_page_token=str(last) if last < len(lines) else None
    )
