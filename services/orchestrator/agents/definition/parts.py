"""Parts that the sections of an agent file share: models, tools, policies and their aliases."""

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
