"""Recordings: a run to be recorded has a readable cassette, or its end gives the reason."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

from headrace.v1 import agent_pb2
from trials.simulation.judging.chats import split_runs

if TYPE_CHECKING:
    from trials.simulation.judging.chats import Logs
    from trials.simulation.people.asked import Asked
    from trials.simulation.people.users import User

CALL_S = 20.0


async def judge_recordings(judge: User, people: Iterable[User], logs: Logs) -> list[str]:
    """Read the cassette of each question that should have one."""
    problems: list[str] = []
    runs = split_runs(logs)
    for asked in (asked for user in people for asked in user.asked if asked.is_recorded):
        end = next((line for line in runs.get(asked.run_id, ()) if line["_type"] == "run"), None)
        if end is None:  # unacknowledged, or its user is erased
            continue
        if not ("recording" in end or "recordingProblem" in end):
            problems.append(f"run {asked.run_id} was to be recorded, and its end says nothing of it")
        elif "recording" in end:
            problems += await _judge_cassette(judge, asked)
    return problems


async def _judge_cassette(judge: User, asked: Asked) -> list[str]:
    lines: list[str] = []
    request = agent_pb2.GetCassetteRequest(run_id=asked.run_id)
    while True:
        page = await judge.try_until_answered(lambda: judge.agents.GetCassette(request, timeout=CALL_S))
        if page is None:
            return [f"run {asked.run_id} has a recording, and no cassette: {judge.refusal}"]
        lines += page.lines
        if not page.next_page_token:
            break
        request.page_token = page.next_page_token
    queries = [line["query"] for line in map(json.loads, lines) if "query" in line]
    if [query["message"] for query in queries] != [asked.message]:
        return [f"the cassette of run {asked.run_id} has the queries {queries}"]
    return []
