"""Functions that a query's caller carries out: frontend tools of that run, answered by Submit."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.errors import InvalidRequest
from headrace.v1 import agent_pb2, tools_pb2
from services.orchestrator.calls.own_tools.planning import PLAN_NAMES
from services.orchestrator.run.answers.call import CLIENT
from services.runtime.formats.json_schema import find_schema_problem

NO_ARGUMENTS = '{"type":"object","properties":{}}'


def make_client_tools(query: agent_pb2.QueryRequest, others: Iterable[tools_pb2.Tool]) -> list[tools_pb2.Tool]:
    """Make tools whose names differ from all `others`.

    Raises:
        InvalidRequest: A name is taken, or parameters are no JSON Schema.
    """
    taken = {tool.name.casefold() for tool in others} | PLAN_NAMES
    tools: list[tools_pb2.Tool] = []
    for index, given in enumerate(query.client_tools):
        if given.name.casefold() in taken:
            raise InvalidRequest.of(f"clientTools[{index}].name", f"{given.name!r} is another tool's name already")
        if problem := find_schema_problem(given.parameters or NO_ARGUMENTS):
            raise InvalidRequest.of(f"clientTools[{index}].parameters", f"must be a JSON Schema: {problem}")
        taken.add(given.name.casefold())
        tools.append(
            tools_pb2.Tool(
                name=given.name,
                description=given.description,
                parameters=given.parameters or NO_ARGUMENTS,
                kind="frontend",
                tier=CLIENT,
                effect="once",
            )
        )
    return tools
