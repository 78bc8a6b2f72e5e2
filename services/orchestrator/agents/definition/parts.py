"""Parts that the sections of an agent file share: models, tools, policies, budgets and memory settings."""

from __future__ import annotations

import json
from functools import cached_property
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from headrace.v1 import common_pb2
from services.runtime.formats.json_schema import find_schema_problem

Positive = Annotated[int, Field(gt=0)]

Policy: TypeAlias = Literal["DISALLOW", "ALLOW", "REQUIRE"]
Output: TypeAlias = Literal["PLAIN", "REASONING_SUMMARY"]
Verify: TypeAlias = Literal["NONE", "SECOND_PASS_FIX"]

TOOL_CHOICES = {"NONE": "DISALLOW", "AUTO": "ALLOW", "REQUIRED": "REQUIRE"}


class Part(BaseModel):
    """A JSON object of the file, with camel-case fields and no others."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)


class ReasoningConfig(Part):
    """Whether the model reasons before it answers; sent only to models with the capability `reasoning`."""

    enabled: bool | None = None
    """True asks for reasoning, false for none; true if only an effort is given. Without a `reasoning` object the
    provider's default applies."""

    effort: Literal["LOW", "MEDIUM", "HIGH"] | None = None
    """Sent as the provider's own effort, or as a budget of 1,024, 4,096 or 16,384 tokens. Left out, the provider
    decides."""


class ModelConfig(Part):
    """The model to use, with its parameters. A stage's own overrides the agent's field by field."""

    provider_key: str | None = None
    """Key of a provider in providers.json; each stage needs one, from here or its own section."""

    model: str | None = None
    """Name of one of that provider's models; each stage needs one as well."""

    reasoning: ReasoningConfig | None = None
    """Reasoning settings, also overridden field by field."""

    temperature: float | None = None
    """Sampling temperature; protocol anthropic accepts at most 1. Not sent to models that accept none. Left out, the
    provider's default."""

    top_p: float | None = Field(default=None, alias="top_p")
    """Nucleus sampling, passed to the provider unchanged. Left out, the provider's default."""

    max_tokens: Positive | None = Field(default=None, alias="max_tokens")
    """Maximum tokens of one answer, reasoning included; that much room stays free in the model's window. Left out, the
    provider's default; for protocol anthropic the model's maxOutput, or 8,192."""

    def merge_over(self, base: ModelConfig) -> ModelConfig:
        """Return this model, with unset fields taken from `base`."""
        merged = base.model_dump(exclude_none=True)
        own = self.model_dump(exclude_none=True)
        if "reasoning" in merged and "reasoning" in own:
            own["reasoning"] = merged["reasoning"] | own["reasoning"]
        return ModelConfig.model_validate(merged | own)


class OutputConfig(Part):
    """How the agent gives its answer."""

    form: Output = "PLAIN"
    """PLAIN streams the model's reasoning; REASONING_SUMMARY streams a short summary of it after the answer, for one
    more model call."""

    schema_: dict[str, Any] | None = Field(default=None, alias="schema")
    """JSON Schema (2020-12) that the answer must match. If an answer does not, the model is asked once more, then the
    run fails with OUTPUT_MISMATCH. A query's outputFormat takes precedence. Left out, any text."""

    name: str | None = Field(default=None, pattern=r"^[\w-]+$", max_length=64)
    """Name of the form, for the provider. Left out, `answer`."""

    description: str | None = None
    """Meaning of the answer, for the model."""

    strict: bool | None = None
    """Whether the provider, if able to, must hold its model to the schema during generation. Left out, the provider's
    default."""

    @model_validator(mode="after")
    def _check_schema(self) -> OutputConfig:
        if self.schema_ is not None and (problem := find_schema_problem(json.dumps(self.schema_))):
            raise ValueError(f"schema: must be a JSON Schema: {problem}")
        return self

    @cached_property
    def output_format(self) -> common_pb2.OutputFormat | None:
        """The form for requests; None if any text is accepted."""
        if self.schema_ is None:
            return None
        return common_pb2.OutputFormat(
            schema=json.dumps(self.schema_), name=self.name, description=self.description, strict=self.strict
        )


class ToolConfig(Part):
    """Names of the tools that the agent's models see. The three lists are one: each tool's definition says its kind."""

    backends: tuple[str, ...] = ()
    """Tools that the tools service executes, MCP tools (`server__tool`) included; `@core` and `@enabled` mean all
    usable tools of those tiers. An unknown name is reported as TOOL_UNAVAILABLE, and the run continues."""

    frontends: tuple[str, ...] = ()
    """Tools that show a view to a person and wait for the answer."""

    actions: tuple[str, ...] = ()
    """Tools that the front end performs without waiting for a person."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.backends, *self.frontends, *self.actions)))


def with_tool_policy(given: Any) -> Any:
    """Accept toolChoice NONE, AUTO, REQUIRED for toolPolicy."""
    if isinstance(given, dict) and "toolChoice" in given and "toolPolicy" not in given:
        given = dict(given)
        choice = given.pop("toolChoice")
        given["toolPolicy"] = TOOL_CHOICES.get(choice, choice) if isinstance(choice, str) else choice
    return given


class Budget(Part):
    """Limits of a run, including its sub-agents, retries, checks and compactions."""

    max_model_calls: Positive | None = None
    """Model calls. Left out, 3 for ONESHOT, 15 for REACT, 30 for PLAN_EXECUTE. If only these run out, the run gets one
    more call for its answer and ends with finishReason budget."""

    max_tool_calls: Annotated[int, Field(ge=0)] | None = None
    """Tool calls. Left out, 5 for ONESHOT, 20 for REACT, 50 for PLAN_EXECUTE. A call over the limit is not executed;
    the model is asked for its answer, and the run ends with finishReason budget."""

    max_tool_calls_per_answer: Positive = 128
    """Tool calls per answer. Further calls are dropped from the answer, and the model receives their number."""

    max_steps: Positive | None = None
    """Turns with tools, per run for REACT, per task for PLAN_EXECUTE; a section's maxSteps overrides it. Left out, 6
    for REACT and 15 for PLAN_EXECUTE."""

    max_repeats: Annotated[int, Field(ge=2, le=100)] = 3
    """Times in a row that a model may make the same call with the same result, get the same error or write the same 80
    or more characters; two alternating calls with unchanged results may repeat one time less. At the limit the model is
    warned; one more repetition ends its work with finishReason stuck."""

    timeout_ms: Positive | None = None
    """Time of the run in milliseconds, excluding waits in the chat's queue and for people. Left out, 120,000, and
    300,000 for PLAN_EXECUTE. Beyond it the run ends with BUDGET_EXCEEDED."""

    max_tokens: Positive | None = None
    """Input and output tokens of all model calls together. Left out, no limit."""

    max_cost_usd: Annotated[float, Field(gt=0)] | None = None
    """Cost of all model calls in US dollars at the prices of providers.json, including sub-agents, tools and
    compactions. A call is made only if the budget covers its greatest possible cost: its input and `max_tokens`, or the
    model's maxOutput, at the highest price of the model and its provider's fallbacks. It first waits for concurrent
    calls; then max_tokens is reduced to fit, and below 256 tokens the run ends with BUDGET_EXCEEDED. Left out, no
    limit."""

    unknown_price: Literal["REFUSE", "MAX_TOKENS"] = "REFUSE"
    """With maxCostUsd, how to treat a call if providers.json has no price for the model or one of its fallbacks. REFUSE
    fails with PRICE_UNKNOWN. MAX_TOKENS, which requires maxTokens, makes the call within that limit until maxCostUsd is
    spent, and runs calls one at a time once the model's calls turn out to cost something."""

    model_timeout_ms: Positive = 60_000
    """How long a model may stay silent, in milliseconds, before its first delta and between two. Beyond it the run
    fails with STREAM_STALLED. Only `timeoutMs` limits the length of an answer."""

    tool_timeout_ms: Positive = 120_000
    """Time of one backend tool call in milliseconds. Frontend tools have their own timeout."""

    max_depth: Positive | None = None
    """Levels of sub-agents below the agent of the run, and of lists below a RECURSIVE plan's own. Left out, 5."""

    tell_model: bool = False
    """Whether each request ends with a line that states the remaining budget."""

    @model_validator(mode="before")
    @classmethod
    def _from_nested(cls, given: Any) -> Any:
        """Accept the nested form {runTimeoutMs, model: {maxCalls, timeoutMs}, tool: {…}}; retryCount has no effect."""
        if not isinstance(given, dict):
            return given
        flat = dict(given)
        if "runTimeoutMs" in flat:
            flat["timeoutMs"] = flat.pop("runTimeoutMs")
        for kind in ("model", "tool"):
            nested = flat.pop(kind, None) or {}
            if not isinstance(nested, dict):
                raise ValueError(f"{kind}: must be an object")
            nested = dict(nested)
            nested.pop("retryCount", None)
            renamed = {f"max{kind.title()}Calls": "maxCalls", f"{kind}TimeoutMs": "timeoutMs"}
            flat |= {name: nested.pop(old) for name, old in renamed.items() if old in nested}
            flat |= {f"{kind}.{name}": value for name, value in nested.items()}
        return flat


class Recap(Part):
    """Replaces old tool results of a long run with one line each, if that costs less than it saves."""

    enabled: bool = False
    """Whether recap is on; if not, the other fields have no effect."""

    active_prompt_max_tokens: Positive = 4000
    """Tokens that the agent's prompt, goal and open tasks may take together; beyond that, text is removed from the
    middle. A prompt that exceeds it alone is logged as a warning."""

    insights_window_size: Positive = 3
    """Minimum number of steps whose results are replaced at a time, first after seven steps or later. Results below 200
    tokens and those of the last step are kept."""

    insights: Literal["preview", "llm"] = "preview"
    """`preview` uses the first 100 characters of a tool result as its insight. `llm` asks the agent's model for the
    insights of all results about to be replaced, one model call each time."""

    max_recursion_depth: Positive | None = None
    """Another name for budget.maxDepth, which wins where both are given."""


class Summary(Part):
    """The model that writes the summaries of compactions, and its additional instructions."""

    provider_key: str | None = None
    """Key of the provider of `model`. Left out, the agent's own."""

    model: str | None = None
    """Name of the model that writes summaries. Left out, the provider's summaryModel, else the agent's model."""

    instructions: Annotated[str, Field(max_length=16_384)] = ""
    """Additional instructions for each summary, on top of its nine sections; for example, figures it must not lose."""


class Memory(Part):
    """How much of the chat a model is shown. The model's window decides, in tokens; `maxRuns` and `maxMessageHistory`
    are caps below it."""

    recap: Recap = Recap()
    """Keeps long runs small; off unless enabled."""

    max_runs: Positive | None = None
    """Maximum number of earlier runs a model sees in addition to a summary. Older ones are compacted between runs, half
    of them at a time. Left out, HEADRACE_MEMORY_CHAT_K (20)."""

    max_message_history: Annotated[int, Field(ge=10)] | None = None
    """Maximum number of messages of earlier runs a model sees. The current run and a summary do not count. Left out,
    HEADRACE_MEMORY_MESSAGE_HISTORY_MAX (no limit)."""

    older: Literal["summary", "drop"] = "summary"
    """How messages beyond a cap are treated: `summary` keeps them until a summary replaces them; `drop` leaves them
    out, with a notice that lists them."""

    threshold: Annotated[float, Field(ge=0.1, le=1)] = 0.8
    """Share of the largest possible request at which the context is compacted before its next turn."""

    kept_share: Annotated[float, Field(ge=0.05, le=0.9)] = 0.2
    """Share of the messages kept verbatim along with a summary."""

    summary: Summary = Summary()
    """The summaries' model and instructions."""

    facts: Literal["off", "tools", "recall"] = "off"
    """Whether the agent uses facts about the user from all chats. `tools` gives it `remember`, `recall` and `forget`;
    `recall` also appends facts that match the user's message to each request."""

    facts_tokens: Positive = 500
    """Maximum tokens of the facts shown, estimated at three bytes a token."""

    extract: Literal["off", "after_run"] = "off"
    """`after_run` has the agent's model extract lasting facts from the user's message once a run is complete, within
    the rest of the run's budget. A fact must quote the message as evidence."""

    clear_results: Annotated[int, Field(ge=0)] | None = None
    """Number of tool results that stay whole when the context nears its threshold; older ones are shortened before any
    summary is written. Left out, age does not shorten results."""
