"""The sections of an agent file, one for each mode, and the settings in force for each stage."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, field_validator, model_validator

from headrace.errors import UnknownPlaceholder
from services.orchestrator.agents import prompts
from services.orchestrator.agents.definition.parts import (
    Budget,
    ModelConfig,
    Output,
    Part,
    Policy,
    Positive,
    ToolConfig,
    Verify,
    with_tool_policy,
)

SECRET_PLACES = ("env:", "file:")

SecretName = Annotated[str, StringConstraints(pattern=r"^(env:\w+|file:.+)$", max_length=1024)]
"""Where a secret is: `env:NAME` or `file:/path`; never the secret itself."""

Host = Annotated[str, StringConstraints(pattern=r"^[^\s/@?#\\]+$", max_length=300)]

HeaderName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+$", max_length=128)]
HeaderValue = Annotated[str, StringConstraints(pattern=r"^[\x20-\x7e]+$", max_length=4096)]

_OURS = frozenset(
    {"a2a-version", "accept", "accept-encoding", "connection", "content-length", "content-type", "host"}
    | {"proxy-authorization", "te", "trailer", "transfer-encoding", "upgrade"}
)
"""Headers that belong to the protocol."""

_SECRET_HEADER = re.compile(r"authorization|cookie|key|token|secret|password", re.IGNORECASE)


class RemotePrice(Part):
    """US dollars for a million tokens, by which what a remote task costs is estimated: it tells nobody."""

    input_per_m_tok: Annotated[float, Field(ge=0)] = 0
    """US dollars for a million tokens that are sent."""

    output_per_m_tok: Annotated[float, Field(ge=0)] = 0
    """US dollars for a million tokens of its answers."""


class Remote(Part):
    """The section of mode REMOTE: an agent elsewhere that speaks A2A 1.0. The user's message, or the task of a
    sub-agent, is sent to it as it is, and its answer is the agent's."""

    card: Annotated[str, StringConstraints(pattern=r"^https?://[^\s/?#@\\]+[^\s#@\\]*$", max_length=2048)]
    """Address of its agent card. https and port 443 or 8443 of the public web; other hosts, ports and http where the
    operator has opened them (HEADRACE_ORCHESTRATOR_REMOTE_ALLOW)."""

    token: SecretName | None = None
    """Where its bearer token is: `env:NAME`, a variable of the orchestrator's environment, or `file:/path`. It is
    looked up at each request and sent as `Authorization: Bearer …`, to no other host than the card's and `hosts`."""

    headers: Annotated[dict[HeaderName, HeaderValue], Field(max_length=20)] = Field(default_factory=dict)
    """Further headers of each request, by name, sent where the token is. A value `env:NAME` or `file:/path` is looked
    up; those of headers that carry secrets must be."""

    hosts: Annotated[tuple[Host, ...], Field(max_length=10)] = ()
    """Further hosts, each `host` or `host:port`, at which its card may say that it is served, and which then get the
    token and headers, too. Left out, the card's own host alone."""

    effect: Literal["once", "idempotent"] = "once"
    """What happens when it is not known whether a message has reached it, as a connection or this process has ended in
    between: with `once` a person is asked whether it is to be sent again, with `idempotent` it is, under the same
    messageId. Agents of Headrace take that for one message."""

    request_timeout_ms: Annotated[Positive, Field(le=600_000)] = 30_000
    """Time in milliseconds for the card, and until a request is answered or its stream has begun."""

    silence_timeout_ms: Annotated[Positive, Field(le=3_600_000)] = 60_000
    """Time in milliseconds for which a stream may be silent; then its task is asked for, and followed anew."""

    question_timeout_ms: Annotated[Positive, Field(le=604_800_000)] = 300_000
    """Time in milliseconds that the user has for an answer to what it asks. Over it its task is cancelled, and the run
    fails with REMOTE_FAILED."""

    max_answer_bytes: Annotated[Positive, Field(le=16 * 1024 * 1024)] = 1024 * 1024
    """Size of its answer, and of anything else that it says at once, at most."""

    price: RemotePrice | None = None
    """Left out, a run with `budget.maxCostUsd` fails with PRICE_UNKNOWN, unless `budget.unknownPrice` says
    otherwise."""

    @field_validator("headers")
    @classmethod
    def _check_headers(cls, headers: dict[str, str]) -> dict[str, str]:
        for name, value in headers.items():
            if name.lower() in _OURS:
                raise ValueError(f"{name}: is the protocol's own")
            if _SECRET_HEADER.search(name) and not value.startswith(SECRET_PLACES):
                raise ValueError(f"{name}: must be env:NAME or file:/path, as it carries a secret")
        return headers

    @property
    def names_secrets(self) -> bool:
        """Whether anything is looked up in the orchestrator's environment or files."""
        return self.token is not None or any(value.startswith(SECRET_PLACES) for value in self.headers.values())


Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$", max_length=64)]


class Section(Part):
    """One stage's prompt, and its overrides; a field left out is as the agent has it."""

    system_prompt: str = ""
    """The stage's system message, with placeholders. It may stand over several lines between triple double quotes."""

    examples: str = ""
    """Examples of good work, which stand behind the prompt where the agent answers a person; as a sub-agent it goes
    without them. They are taken as they are, without placeholders."""

    model_config_: ModelConfig | None = Field(default=None, alias="modelConfig")
    """Overrides the agent's field by field."""

    tool_config: ToolConfig | None = None
    """Replaces the agent's lists as a whole. An explicit null takes all ordinary tools from the stage; the plan's own
    tools stay. An empty object overrides nothing."""

    tool_policy: Policy | None = None
    """Overrides the agent's."""

    output: Output | None = None
    """Overrides the agent's."""

    verify: Verify | None = None
    """Overrides the agent's; only the stage that gives the answer is checked."""

    budget: Budget | None = None
    """Fields that are given override the agent's, for the whole run; of plan, execute and summary, as of custom and its
    stages, the last that gives a field wins."""

    @model_validator(mode="before")
    @classmethod
    def _accept_aliases(cls, given: Any) -> Any:
        return with_tool_policy(given)

    @field_validator("system_prompt")
    @classmethod
    def _check_placeholders(cls, prompt: str) -> str:
        try:
            prompts.check_placeholders(prompt)
        except UnknownPlaceholder as error:
            raise ValueError(error.message) from None
        return prompt

    @property
    def empties_tools(self) -> bool:
        """Whether toolConfig is an explicit null."""
        return "tool_config" in self.model_fields_set and self.tool_config is None


class React(Section):
    """The section of mode REACT."""

    max_steps: Positive | None = None
    """Turns with tools; then one call without tools gives the answer. Left out, budget.maxSteps, else 6."""

    parallel_tool_calls: bool = False
    """Whether the calls of one answer run at the same time. Otherwise the first runs, and each other gets a result that
    says it was not run."""


class Planning(Section):
    """The section of the stage that makes the plan."""

    deep_thinking: bool = False
    """Whether a draft, with reasoning and without tools, precedes the turn that makes the plan; it costs one more model
    call."""


class PlanExecute(Part):
    """The stages of mode PLAN_EXECUTE, and how the tasks of a plan are gone through."""

    strategy: Literal["SEQUENTIAL", "PARALLEL", "RECURSIVE"] = "SEQUENTIAL"
    """SEQUENTIAL does the tasks in order. PARALLEL does neighbours of one group at the same time, and asks the planner
    for more. RECURSIVE splits composite tasks, and restates what is left after each task."""

    max_steps: Positive | None = None
    """Turns with tools in one task, which must then say how it ended. Left out, budget.maxSteps, else 15."""

    max_rounds: Positive = 10
    """Rounds in which the planner of PARALLEL, shown all results, may add further tasks."""

    max_parallel: Positive = 8
    """Tasks of one group at the same time; only PARALLEL has groups."""

    recall_plans: bool = False
    """Whether a complete run's plan is kept for its user, and offered as a start to the planner of their next similar
    question to this agent."""

    plan: Planning
    """Makes the plan. Its tools are those of the plan."""

    execute: Section
    """Does each task, with the ordinary tools."""

    summary: Section | None = None
    """Writes the answer, in one turn without tools. Without a prompt of its own it has the execute section's."""


class Custom(Section):
    """The section of mode CUSTOM: a mode of the operator's own, and what its stages have in common."""

    mode: Name
    """Name of the mode: its file in the folder `modes` of the configuration, without `.py`."""

    params: dict[str, Any] = Field(default_factory=dict[str, Any])
    """Values for the mode's code, which says what they mean."""

    max_steps: Positive = 1000
    """Steps of the mode in all: what its code asks for. One more ends the run, or of a sub-agent its part, with
    BUDGET_EXCEEDED. (Turns with tools within one `ask` are budget.maxSteps, else 6.)"""

    stages: dict[Name, Section] = Field(default_factory=dict[Name, Section])
    """Further prompts, models and tools, by the name by which the mode's code begins a task with them. What one leaves
    out is as the section `custom` has it."""


@dataclass(frozen=True, slots=True)
class StageSettings:
    stage: str

    system_prompt: str
    model: ModelConfig
    tools: tuple[str, ...]

    may_use_tools: bool
    """Whether the model may also see tools that the agent does not list."""

    policy: str

    output: str
    verify: str
    steps_max: int

    parallel_tool_calls: bool = False

    examples: str = ""
    """What stands behind the prompt where the agent is no sub-agent."""


AS_STAGE = Section(tool_policy="DISALLOW")
"""The stage of mode REMOTE: no model is asked, so nothing of it is to be set."""
