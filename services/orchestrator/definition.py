"""Agent files: what may stand in them, and what is in force for a run.

The file's form is agents.md's. Fields of later versions (plans, sub-agents, skills, verification) are refused by
name rather than ignored, unless they switch off what is off anyway, so that nobody relies on what does not happen.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, Literal

import orjson
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic.alias_generators import to_camel

from headrace.errors import UnknownPlaceholder
from services.orchestrator import prompts, triple_quotes

Key = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,128}$")]
Positive = Annotated[int, Field(gt=0)]


def _nothing(names: tuple[str, ...]) -> tuple[str, ...]:
    if names:
        raise ValueError("not supported by this version; leave it empty")
    return names


Nothing = Annotated[tuple[str, ...], AfterValidator(_nothing)]
"""Names of what a later version has: an empty list asks for nothing that does not happen."""

RESERVED_KEYS = frozenset({"default", "auto"})
"""Words that a query's agentKey gives another meaning."""

TOOL_CHOICES = {"NONE": "DISALLOW", "AUTO": "ALLOW", "REQUIRED": "REQUIRE"}


class DefinitionError(Exception):
    """What is wrong with an agent file, one problem a line, each naming field and expectation."""


class _Part(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)


class ReasoningConfig(_Part):
    enabled: bool | None = None
    effort: Literal["LOW", "MEDIUM", "HIGH"] | None = None


class ModelConfig(_Part):
    """Which model, and how it is asked. A stage's own overrides the agent's field by field."""

    provider_key: str | None = None
    model: str | None = None
    reasoning: ReasoningConfig | None = None
    temperature: float | None = None
    top_p: float | None = Field(default=None, alias="top_p")
    max_tokens: Positive | None = Field(default=None, alias="max_tokens")

    def over(self, base: ModelConfig) -> ModelConfig:
        """This one, with the fields it does not set taken from `base`."""
        merged = base.model_dump(exclude_none=True)
        own = self.model_dump(exclude_none=True)
        if "reasoning" in merged and "reasoning" in own:
            own["reasoning"] = merged["reasoning"] | own["reasoning"]
        return ModelConfig.model_validate(merged | own)


class ToolConfig(_Part):
    """Names of the tools an agent may call."""

    backends: tuple[str, ...] = ()
    frontends: Nothing = ()
    actions: Nothing = ()


class Budget(_Part):
    """Limits of a run; None: the mode's default, and for tokens and cost no limit."""

    max_model_calls: Positive | None = None
    max_tool_calls: Annotated[int, Field(ge=0)] | None = None
    max_steps: Positive | None = None
    timeout_ms: Positive | None = None
    max_tokens: Positive | None = None
    max_cost_usd: Annotated[float, Field(gt=0)] | None = None
    model_timeout_ms: Positive = 60_000
    tool_timeout_ms: Positive = 120_000
    max_depth: Positive | None = None
    """Of sub-agents, which this version does not have: any depth holds."""

    @model_validator(mode="before")
    @classmethod
    def _from_nested(cls, given: Any) -> Any:
        """The other form: {runTimeoutMs, model: {maxCalls, timeoutMs}, tool: {…}}; retryCount has no effect here."""
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


class Recap(_Part):
    """Parent contexts of sub-agents; off, the rest of it has no effect."""

    enabled: Literal[False] = False
    active_prompt_max_tokens: Positive | None = None
    insights_window_size: Positive | None = None
    insights: Literal["preview", "llm"] | None = None
    max_recursion_depth: Positive | None = None


class Memory(_Part):
    recap: Recap = Recap()
    max_message_history: Annotated[int, Field(ge=10, le=100)] = 40


class Stage(_Part):
    """One stage's prompt and what it overrides."""

    system_prompt: str = ""
    model_config_: ModelConfig | None = Field(default=None, alias="modelConfig")
    tool_config: ToolConfig | None = None
    tool_policy: Literal["DISALLOW", "ALLOW", "REQUIRE"] | None = None
    output: Literal["PLAIN"] = "PLAIN"
    verify: Literal["NONE"] = "NONE"
    budget: Budget | None = None

    @model_validator(mode="before")
    @classmethod
    def _aliases(cls, given: Any) -> Any:
        return _tool_choice(given)

    @field_validator("system_prompt")
    @classmethod
    def _placeholders(cls, prompt: str) -> str:
        try:
            prompts.check(prompt)
        except UnknownPlaceholder as error:
            raise ValueError(error.message) from None
        return prompt


class React(Stage):
    max_steps: Positive | None = None
    parallel_tool_calls: bool = False


class Definition(_Part):
    """An agent file that is in order."""

    key: Key
    name: str = ""
    icon: str | None = None
    description: str = ""
    tags: tuple[str, ...] = ()
    mode: Literal["ONESHOT", "REACT"]
    model_config_: ModelConfig | None = Field(default=None, alias="modelConfig")
    tool_config: ToolConfig | None = None
    tool_policy: Literal["DISALLOW", "ALLOW", "REQUIRE"] = "ALLOW"
    output: Literal["PLAIN"] = "PLAIN"
    verify: Literal["NONE"] = "NONE"
    skills: Nothing = ()
    subagents: Nothing = ()
    budget: Budget = Budget()
    memory: Memory = Memory()
    plain: Stage | None = None
    react: React | None = None

    hash: str = ""
    """Of the file's bytes; stands on each run that uses it."""

    @model_validator(mode="before")
    @classmethod
    def _aliases(cls, given: Any) -> Any:
        return _tool_choice(given)

    @model_validator(mode="after")
    def _whole(self) -> Definition:
        section = "plain" if self.mode == "ONESHOT" else "react"
        if getattr(self, section) is None:
            raise ValueError(f"{section}: is required for mode {self.mode}")
        model = self.model
        if not model.provider_key or not model.model:
            raise ValueError(f"modelConfig: providerKey and model must be set, here or in {section}.modelConfig")
        if self.key in RESERVED_KEYS:
            raise ValueError(f"key: {self.key!r} is reserved")
        return self

    @property
    def stage(self) -> Stage:
        """The section of the agent's mode."""
        stage = self.plain if self.mode == "ONESHOT" else self.react
        assert stage is not None, "validated in _whole"
        return stage

    @property
    def model(self) -> ModelConfig:
        """The model of the stage, the agent's own where it does not say."""
        base = self.model_config_ or ModelConfig()
        return self.stage.model_config_.over(base) if self.stage.model_config_ else base

    @property
    def tools(self) -> tuple[str, ...]:
        """Names of the tools in force: the stage's, else the agent's; an explicit null in the stage empties them."""
        config, own = self.tool_config, self.stage.tool_config
        if "tool_config" in self.stage.model_fields_set and (own is None or "backends" in own.model_fields_set):
            config = own
        return config.backends if config and self.policy != "DISALLOW" else ()

    @property
    def policy(self) -> str:
        """DISALLOW, ALLOW or REQUIRE."""
        return self.stage.tool_policy or self.tool_policy

    @property
    def limits(self) -> Budget:
        """The budget in force: the agent's, with the fields that the stage sets."""
        own = self.stage.budget.model_dump(exclude_unset=True) if self.stage.budget else {}
        return self.budget.model_copy(update=own)


def parse(source: bytes, file_key: str) -> Definition:
    """The definition in an agent file's bytes; `file_key` is its key when it names none.

    Raises:
        DefinitionError: Naming line or field, and what was expected.
    """
    try:
        given = orjson.loads(triple_quotes.to_json(source.decode("utf-8-sig")))
    except UnicodeDecodeError as error:
        raise DefinitionError(f"not UTF-8 text (byte {error.start})") from None
    except orjson.JSONDecodeError as error:
        raise DefinitionError(f"line {error.lineno}, column {error.colno}: not valid JSON: {error.msg}") from None
    if not isinstance(given, dict):
        raise DefinitionError("expected a JSON object")
    try:
        return Definition.model_validate({"key": file_key} | given | {"hash": hashlib.sha256(source).hexdigest()[:16]})
    except ValidationError as error:
        raise DefinitionError("\n".join(_problem(item) for item in error.errors())) from None


def _tool_choice(given: Any) -> Any:
    """toolChoice NONE, AUTO, REQUIRED is accepted for toolPolicy."""
    if isinstance(given, dict) and "toolChoice" in given and "toolPolicy" not in given:
        given = dict(given)
        choice = given.pop("toolChoice")
        given["toolPolicy"] = TOOL_CHOICES.get(choice, choice) if isinstance(choice, str) else choice
    return given


def _problem(item: Any) -> str:
    field = ".".join(str(part) for part in item["loc"])
    text = item["msg"].removeprefix("Value error, ")
    if item["type"] == "extra_forbidden":
        text = "unknown, or not supported by this version"
    return f"{field}: {text}" if field else text
