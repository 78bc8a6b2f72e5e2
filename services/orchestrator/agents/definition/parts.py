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
    """Whether the model thinks before it answers; sent only to models with the capability `reasoning`."""

    enabled: bool | None = None
    """True asks for reasoning, false for none; true where only an effort is given. Without any `reasoning` object the
    provider's own default holds."""

    effort: Literal["LOW", "MEDIUM", "HIGH"] | None = None
    """Sent as the provider's own effort, or as 1,024, 4,096 or 16,384 tokens where the provider takes a budget. Left
    out, the provider decides."""


class ModelConfig(Part):
    """Which model is asked, and how. A stage's own overrides the agent's field by field."""

    provider_key: str | None = None
    """Key of a provider in providers.json; each stage needs one, from here or from its section."""

    model: str | None = None
    """Name of one of that provider's models; each stage needs one, too."""

    reasoning: ReasoningConfig | None = None
    """Overridden field by field, too."""

    temperature: float | None = None
    """Sampling temperature; protocol anthropic takes at most 1, and models that take none are sent none. Left out, the
    provider's default."""

    top_p: float | None = Field(default=None, alias="top_p")
    """Nucleus sampling, passed on as it is. Left out, the provider's default."""

    max_tokens: Positive | None = Field(default=None, alias="max_tokens")
    """Tokens of one answer at most, reasoning included; as many are kept free in the model's window. Left out, the
    provider's default, and for protocol anthropic the model's maxOutput, or 8,192."""

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
    """JSON Schema (2020-12) that the answer must fit. An answer in another form is asked for once more, then the run
    fails with OUTPUT_MISMATCH. A query's outputFormat goes before it. Left out, any text."""

    name: str | None = Field(default=None, pattern=r"^[\w-]+$", max_length=64)
    """Name of the form, for the provider. Left out, `answer`."""

    description: str | None = None
    """Meaning of the answer, for the model."""

    strict: bool | None = None
    """Whether a provider that can do so shall hold its model to the schema while it writes. Left out, as it does by
    itself."""

    @model_validator(mode="after")
    def _check_schema(self) -> OutputConfig:
        if self.schema_ is not None and (problem := find_schema_problem(json.dumps(self.schema_))):
            raise ValueError(f"schema: must be a JSON Schema: {problem}")
        return self

    @cached_property
    def output_format(self) -> common_pb2.OutputFormat | None:
        """The form for requests; None where any text will do."""
        if self.schema_ is None:
            return None
        return common_pb2.OutputFormat(
            schema=json.dumps(self.schema_), name=self.name, description=self.description, strict=self.strict
        )


class ToolConfig(Part):
    """Names of the tools that the agent's models see. The three lists are one: each tool's definition says its kind."""

    backends: tuple[str, ...] = ()
    """Tools that the tools service executes, MCP tools (`server__tool`) included; `@core` and `@enabled` stand for all
    usable tools of those tiers. A name that does not exist is reported as TOOL_UNAVAILABLE, and the run goes on."""

    frontends: tuple[str, ...] = ()
    """Tools that show a view to a person and wait for the answer."""

    actions: tuple[str, ...] = ()
    """Tools that the front end carries out at once."""

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
    """Limits of a run, its sub-agents, retries, checks and compactions included."""

    max_model_calls: Positive | None = None
    """Model calls. Left out, 3 for ONESHOT, 15 for REACT, 30 for PLAN_EXECUTE. When only these are spent, the run gets
    one more call for its answer and ends with finishReason budget."""

    max_tool_calls: Annotated[int, Field(ge=0)] | None = None
    """Tool calls. Left out, 5 for ONESHOT, 20 for REACT, 50 for PLAN_EXECUTE. A call over the limit is not run, the
    answer is asked for, and the run ends with finishReason budget."""

    max_tool_calls_per_answer: Positive = 128
    """Tool calls of one answer. Those beyond it are left out of the answer, and the model is told how many."""

    max_steps: Positive | None = None
    """Turns with tools, of the run for REACT, of each task for PLAN_EXECUTE; a section's maxSteps wins over it. Left
    out, 6 for REACT and 15 for PLAN_EXECUTE."""

    max_repeats: Annotated[int, Field(ge=2, le=100)] = 3
    """Times in a row that a model may make the same call, get the same error or say the same 80 characters or more; two
    calls in turn with the same results may come once less. At the limit it is told, and once more ends its work with
    finishReason stuck."""

    timeout_ms: Positive | None = None
    """Time of the run in milliseconds, without waits in the chat's queue and for people. Left out, 120,000, and 300,000
    for PLAN_EXECUTE. Over it the run ends with BUDGET_EXCEEDED."""

    max_tokens: Positive | None = None
    """Input and output tokens of all model calls together. Left out, no limit."""

    max_cost_usd: Annotated[float, Field(gt=0)] | None = None
    """Cost of all model calls in US dollars, by the prices of providers.json, sub-agents, tools and compactions
    included. A call is made only when its greatest cost is still there: its input and `max_tokens`, or the model's
    maxOutput, at the dearest price of the model and its provider's fallbacks. Others' calls under way are waited for;
    then max_tokens is lowered to what is left, and below 256 tokens the run ends with BUDGET_EXCEEDED. Left out, no
    limit."""

    unknown_price: Literal["REFUSE", "MAX_TOKENS"] = "REFUSE"
    """With maxCostUsd, for a call whose price is not known because the model or one of its fallbacks has none in
    providers.json: REFUSE fails with PRICE_UNKNOWN, MAX_TOKENS makes it within maxTokens, which must be set,
    while maxCostUsd is not spent, and one at a time if the model's calls turn out to cost something."""

    model_timeout_ms: Positive = 60_000
    """Time in milliseconds that a model may be silent: before its first delta, and between two. Over it the run fails
    with STREAM_STALLED. How long an answer takes is limited by `timeoutMs` alone."""

    tool_timeout_ms: Positive = 120_000
    """Time of one backend tool call in milliseconds. Frontend tools wait as their own definition says."""

    max_depth: Positive | None = None
    """Levels of sub-agents below the agent of the run, and of lists below a RECURSIVE plan's own. Left out, 5."""

    tell_model: bool = False
    """Whether each request ends with a line that says what is left of the budget."""

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
    """Puts a line each in the place of old tool results of a long run, where that costs less than it saves."""

    enabled: bool = False
    """Whether recap is on; otherwise the other fields have no effect."""

    active_prompt_max_tokens: Positive = 4000
    """Tokens that the agent's prompt, goal and open tasks may take together; over it the middle of the text goes. A
    prompt that alone is larger is logged as a warning."""

    insights_window_size: Positive = 3
    """Steps whose results are replaced at a time, at least; the first time is after seven steps or later. Results of
    less than 200 tokens stay, and those of the last step."""

    insights: Literal["preview", "llm"] = "preview"
    """`preview` takes the first 100 characters of a tool result as its insight; `llm` asks the agent's model for the
    insights of all results that are about to be replaced, which counts as a model call each time."""

    max_recursion_depth: Positive | None = None
    """Another name for budget.maxDepth, which wins where both are given."""


class Summary(Part):
    """Who writes the summaries of compactions, and what they heed."""

    provider_key: str | None = None
    """Key of the provider of `model`. Left out, the agent's own."""

    model: str | None = None
    """Name of the model that writes summaries. Left out, the provider's summaryModel, else the agent's model."""

    instructions: Annotated[str, Field(max_length=16_384)] = ""
    """What each summary is to heed beside its nine sections, for example which figures it may not lose."""


class Memory(Part):
    """How much of the chat a model is shown. The model's window decides, in tokens; `maxRuns` and `maxMessageHistory`
    are caps below it."""

    recap: Recap = Recap()
    """Keeps long runs small; off unless enabled."""

    max_runs: Positive | None = None
    """Earlier runs that a model sees at most, beside a summary. What is past it is compacted between runs, half of them
    at a time. Left out, HEADRACE_MEMORY_CHAT_K (20)."""

    max_message_history: Annotated[int, Field(ge=10)] | None = None
    """Messages of earlier runs that a model sees at most, likewise. The current run and a summary do not count. Left
    out, HEADRACE_MEMORY_MESSAGE_HISTORY_MAX (no limit)."""

    older: Literal["summary", "drop"] = "summary"
    """What becomes of messages past a cap: `summary` keeps them until a summary stands for them; `drop` leaves them
    out, and a notice says which."""

    threshold: Annotated[float, Field(ge=0.1, le=1)] = 0.8
    """Share of the greatest request from which the context is compacted before its next turn."""

    kept_share: Annotated[float, Field(ge=0.05, le=0.9)] = 0.2
    """Share of the messages that stay beside a summary."""

    summary: Summary = Summary()
    """Who writes summaries, and what they heed."""

    facts: Literal["off", "tools", "recall"] = "off"
    """Whether the agent works with facts about the user from all chats: `tools` gives it `remember`, `recall` and
    `forget`; `recall` also shows it the facts that match the user's message, at the end of each request."""

    facts_tokens: Positive = 500
    """Tokens that the facts shown may take together, by our estimate of a token for three bytes."""

    extract: Literal["off", "after_run"] = "off"
    """`after_run` has the agent's model look for lasting facts in the user's message once a run is complete, with what
    is left of the run's budget. A fact counts only with words of the message as its proof."""

    clear_results: Annotated[int, Field(ge=0)] | None = None
    """Number of tool results that stay whole when the context nears its threshold; older ones are shortened before any
    summary is written. Left out, results are not shortened for their age."""
