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
from services.runtime.files.named_secrets import SECRET_PLACES

SecretName = Annotated[str, StringConstraints(pattern=r"^(env:\w+|file:.+)$", max_length=1024)]
"""Location of a secret: `env:NAME` or `file:/path`; never the secret itself."""

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
    """Prices in US dollars per million tokens, used to estimate the cost of a remote task, which reports none."""

    input_per_m_tok: Annotated[float, Field(ge=0)] = 0
    """US dollars per million tokens sent."""

    output_per_m_tok: Annotated[float, Field(ge=0)] = 0
    """US dollars per million tokens of its answers."""


class Remote(Part):
    """The section of mode REMOTE: an agent elsewhere that speaks A2A 1.0. It receives the user's message, or a
    sub-agent's task, unchanged, and its answer becomes the agent's."""

    card: Annotated[str, StringConstraints(pattern=r"^https?://[^\s/?#@\\]+[^\s#@\\]*$", max_length=2048)]
    """Address of its agent card: https on port 443 or 8443 of the public web. The operator can allow other hosts, ports
    and http (HEADRACE_ORCHESTRATOR_REMOTE_ALLOW)."""

    token: SecretName | None = None
    """Location of its bearer token: `env:NAME`, a variable of the orchestrator's environment, or `file:/path`. Looked
    up at each request and sent as `Authorization: Bearer …`, only to the card's host and `hosts`."""

    headers: Annotated[dict[HeaderName, HeaderValue], Field(max_length=20)] = Field(default_factory=dict)
    """Further headers of each request, by name, sent wherever the token is. Values `env:NAME` and `file:/path` are
    looked up; headers that carry secrets must use one of them."""

    hosts: Annotated[tuple[Host, ...], Field(max_length=10)] = ()
    """Further hosts, each `host` or `host:port`, that its card may name as its endpoint; they also receive the token
    and headers. Left out, only the card's host."""

    effect: Literal["once", "idempotent"] = "once"
    """What to do if a connection or this process breaks while a message is being sent, so that delivery is uncertain:
    `once` asks a person whether to send it again; `idempotent` sends it again under the same messageId. Headrace agents
    treat both as one message."""

    request_timeout_ms: Annotated[Positive, Field(le=600_000)] = 30_000
    """Time in milliseconds for the card, and until a request is answered or its stream has started."""

    silence_timeout_ms: Annotated[Positive, Field(le=3_600_000)] = 60_000
    """How long a stream may be silent, in milliseconds; then the task is fetched and its stream is opened again."""

    question_timeout_ms: Annotated[Positive, Field(le=604_800_000)] = 300_000
    """Time in milliseconds that the user has to answer a question of the remote agent. Then its task is cancelled, and
    the run fails with REMOTE_FAILED."""

    max_answer_bytes: Annotated[Positive, Field(le=16 * 1024 * 1024)] = 1024 * 1024
    """Maximum size in bytes of its answer, and of any single message it sends."""

    price: RemotePrice | None = None
    """Left out, a run with `budget.maxCostUsd` fails with PRICE_UNKNOWN, unless `budget.unknownPrice` allows it."""

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
        """Whether the section refers to the orchestrator's environment or files."""
        return self.token is not None or any(value.startswith(SECRET_PLACES) for value in self.headers.values())


Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$", max_length=64)]


class Section(Part):
    """One stage's prompt and overrides; the agent's value applies to fields left out."""

    system_prompt: str = ""
    """The stage's system message, with placeholders. It may span several lines between triple double quotes."""

    examples: str = ""
    """Examples of good work, appended to the prompt if the agent answers a person; sub-agents do not get them. Inserted
    verbatim, without placeholders."""

    model_config_: ModelConfig | None = Field(default=None, alias="modelConfig")
    """Overrides the agent's field by field."""

    tool_config: ToolConfig | None = None
    """Replaces the agent's lists as a whole. An explicit null removes all ordinary tools from the stage; the plan's own
    tools stay. An empty object overrides nothing."""

    tool_policy: Policy | None = None
    """Overrides the agent's."""

    output: Output | None = None
    """Overrides the agent's."""

    verify: Verify | None = None
    """Overrides the agent's; only the stage that gives the answer is checked."""

    budget: Budget | None = None
    """Given fields override the agent's, for the whole run. If several stages give a field, the last one wins: plan,
    execute, summary; or custom, then its stages."""

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
    """Whether the calls of one answer run concurrently. If not, only the first runs, and each other call returns that
    it was not run."""


class Planning(Section):
    """The section of the stage that makes the plan."""

    deep_thinking: bool = False
    """Whether a draft, with reasoning and without tools, precedes the turn that makes the plan; it costs one more model
    call."""


class PlanExecute(Part):
    """The stages of mode PLAN_EXECUTE, and the strategy for a plan's tasks."""

    strategy: Literal["SEQUENTIAL", "PARALLEL", "RECURSIVE"] = "SEQUENTIAL"
    """SEQUENTIAL does the tasks in order. PARALLEL does adjacent tasks of one group concurrently, and asks the planner
    for more. RECURSIVE splits composite tasks, and restates the remaining work after each task."""

    max_steps: Positive | None = None
    """Turns with tools per task; the task must then report how it ended. Left out, budget.maxSteps, else 15."""

    max_rounds: Positive = 10
    """Rounds in which the planner of PARALLEL sees all results and may add tasks."""

    max_parallel: Positive = 8
    """Tasks of one group that run concurrently; only PARALLEL has groups."""

    recall_plans: bool = False
    """Whether the plan of a completed run is kept for its user, and offered as a start when that user asks this agent a
    similar question."""

    plan: Planning
    """Makes the plan, with the plan's tools only."""

    execute: Section
    """Does each task, with the ordinary tools."""

    summary: Section | None = None
    """Writes the answer, in one turn without tools. If it has no prompt, the execute section's applies."""


class Custom(Section):
    """The section of mode CUSTOM: one of the operator's modes, and defaults for its stages."""

    mode: Name
    """Name of the mode: its file in the folder `modes` of the configuration, without `.py`."""

    params: dict[str, Any] = Field(default_factory=dict[str, Any])
    """Parameters for the mode's code, which defines their meaning."""

    max_steps: Positive = 1000
    """Maximum number of steps that the mode's code may request. One more ends the run, or a sub-agent's part of it,
    with BUDGET_EXCEEDED. (budget.maxSteps, else 6, limits turns with tools within one `ask`.)"""

    stages: dict[Name, Section] = Field(default_factory=dict[Name, Section])
    """Further prompts, models and tools, by the name that the mode's code uses to start a task with them. The section
    `custom` supplies fields left out."""


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
    """Appended to the prompt unless the agent is a sub-agent."""


AS_STAGE = Section(tool_policy="DISALLOW")
"""The stage of mode REMOTE; it asks no model, so it has no settings."""
