"""The form that an answer must have: a JSON Schema of the query, or else of the agent."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.errors import InvalidRequest, OutputMismatch
from headrace.v1 import agent_pb2, common_pb2
from services.orchestrator.agents.definition.modes import STAGES
from services.orchestrator.run.scope import Scope
from services.runtime.formats.json_schema import (
    CompiledSchema,
    compile_schema,
    describe_violations,
    find_schema_problem,
    load_json,
)
from services.runtime.formats.own_tags import strip_fence

REPAIR_PROMPT = (
    "Your answer does not have the form that was asked for: {problem}. Answer again with one JSON value that fits the"
    " schema, and nothing else."
)


@dataclass(frozen=True, slots=True)
class Output:
    json: str
    """The answer's JSON as the model wrote it, without a code fence."""

    problem: str
    """Why it does not match, for the model; empty if it does."""

    def require_json(self) -> str:
        """Return the JSON.

        Raises:
            OutputMismatch: It does not match the form.
        """
        if self.problem:
            raise OutputMismatch(f"the model's answer does not fit the schema: {self.problem}")
        return self.json


@dataclass(frozen=True, slots=True)
class OutputForm:
    format: common_pb2.OutputFormat
    schema: CompiledSchema

    def read_output(self, text: str) -> Output:
        text = strip_fence(text).strip()
        try:
            value = load_json(text)
        except (ValueError, RecursionError):
            return Output(text, "$: not valid JSON")
        return Output(text, describe_violations(value, self.schema))


def find_form(scope: Scope) -> OutputForm | None:
    """Return the form of the answer in the scope's stage; None for any text.

    The query's form applies to the run's own answer, an agent's form to that agent's answers.
    """
    run = scope.run
    if scope.ids.task_id is not None or not STAGES[scope.settings.stage].gives_answer:
        return None
    if scope is run.main and run.query.HasField("output_format"):
        return _make_form(run.query.output_format)
    is_copy = scope is not run.main and scope.agent.key == run.agent.key
    wanted = None if is_copy else scope.agent.output_config.output_format
    return None if wanted is None else _make_form(wanted)


def check_output_format(query: agent_pb2.QueryRequest) -> None:
    """Raise InvalidRequest if the query's schema is not a JSON Schema."""
    if query.HasField("output_format") and (problem := find_schema_problem(query.output_format.schema)):
        raise InvalidRequest.of("outputFormat.schema", f"must be a JSON Schema: {problem}")


def _make_form(wanted: common_pb2.OutputFormat) -> OutputForm:
    return OutputForm(wanted, compile_schema(wanted.schema))
