"""What the sections of an agent file have in common: models, tools, policies, and their other spellings."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

Positive = Annotated[int, Field(gt=0)]

Policy: TypeAlias = Literal["DISALLOW", "ALLOW", "REQUIRE"]
Output: TypeAlias = Literal["PLAIN", "REASONING_SUMMARY"]
Verify: TypeAlias = Literal["NONE", "SECOND_PASS_FIX"]

TOOL_CHOICES = {"NONE": "DISALLOW", "AUTO": "ALLOW", "REQUIRED": "REQUIRE"}


class Part(BaseModel):
    """A JSON object of the file: its fields in camel case, and no others."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)


class ReasoningConfig(Part):
    enabled: bool | None = None
    effort: Literal["LOW", "MEDIUM", "HIGH"] | None = None


class ModelConfig(Part):
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


class ToolConfig(Part):
    """Names of the tools an agent may call."""

    backends: tuple[str, ...] = ()
    frontends: tuple[str, ...] = ()
    actions: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """All names, each once, in the order in which they stand."""
        return tuple(dict.fromkeys((*self.backends, *self.frontends, *self.actions)))


def with_tool_policy(given: Any) -> Any:
    """toolChoice NONE, AUTO, REQUIRED is accepted for toolPolicy."""
    if isinstance(given, dict) and "toolChoice" in given and "toolPolicy" not in given:
        given = dict(given)
        choice = given.pop("toolChoice")
        given["toolPolicy"] = TOOL_CHOICES.get(choice, choice) if isinstance(choice, str) else choice
    return given
