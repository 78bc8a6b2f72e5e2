"""The provider file's format: pydantic models of providers.json."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator
from pydantic.alias_generators import to_camel

Key = Annotated[str, StringConstraints(pattern=r"^[\w.-]{1,128}$")]
SecretName = Annotated[str, StringConstraints(pattern=r"^(env:\w+|file:.+)$")]
"""Where a secret is: `env:NAME` or `file:/path`; never the secret itself."""

SEPARATORS = "-.:@/_"
"""What may follow a configured model name in the name of a model that it answers for."""

Fallback = Annotated[str, StringConstraints(pattern=r"^[\w.-]{1,128}/.{1,256}$")]
"""`provider/model`; the model's own name may hold further slashes."""


class _Entry(BaseModel):
    # Input is hidden in errors: someone may have written a key where a name belongs.
    model_config = ConfigDict(
        extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True, hide_input_in_errors=True
    )


class Quota(_Entry):
    """What the provider allows one account."""

    requests_per_minute: int | None = Field(default=None, gt=0)
    tokens_per_minute: int | None = Field(default=None, gt=0)
    concurrency: int | None = Field(default=None, gt=0)


class Timeouts(_Entry):
    """How long the provider may stay silent."""

    connect_ms: int = Field(default=5_000, gt=0)

    first_delta_ms: int = Field(default=20_000, gt=0)
    """From the request to the first reasoning, content or tool call; frames without any do not count."""

    idle_ms: int = Field(default=60_000, gt=0)
    """Between bytes after that."""


class Retry(_Entry):
    """How often a call is tried."""

    max_attempts: int = Field(default=3, gt=0, le=10)
    """At this provider, the first included; fallbacks have their own."""


class Price(_Entry):
    """US dollars for a million tokens."""

    input_per_m_tok: float = Field(default=0, ge=0)
    output_per_m_tok: float = Field(default=0, ge=0)


class Model(_Entry):
    """One model of a provider."""

    name: str = Field(min_length=1, max_length=256)
    """Answers for every model whose name goes on after it with a separator: gpt-4o for gpt-4o-2024-08-06."""

    context_window: int = Field(default=0, ge=0)
    """Tokens; 0: not known."""

    max_output: int = Field(default=0, ge=0)
    """Tokens; 0: not known."""

    encoding: str | None = None
    capabilities: tuple[Literal["tools", "reasoning", "vision"], ...] = ()
    price: Price | None = None
    comment: str | None = None

    def answers_for(self, name: str) -> bool:
        """Whether this entry describes the model `name`."""
        return name == self.name or (name.startswith(self.name) and name[len(self.name)] in SEPARATORS)


class Provider(_Entry):
    """One account at one provider."""

    key: Key
    protocol: Literal["openai", "anthropic"]

    base_url: str = Field(pattern=r"^(https?://[^\s/?#]+[^\s?#]*|env:\w+)$")
    """As the provider's documentation gives it, with the version at its end; or the variable that holds it."""

    api_keys: tuple[SecretName, ...] = ()
    """The first that is set is used, the next one when it is refused; none at all: calls carry no credential."""

    reasoning: Literal[
        "reasoning_effort",
        "enable_thinking",
        "thinking",
        "reasoning",
        "chat_template_kwargs",
        "reasoning_split",
        "adaptive",
    ] = "reasoning_effort"
    """The provider's own form of a reasoning wish (reasoning_forms.py). For protocol anthropic: `adaptive` for models
    that decide themselves, anything else is a budget of tokens (anthropic_request.py)."""

    output_limit: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """The provider's word for the greatest number of tokens to produce."""

    quota: Quota | None = None
    timeouts: Timeouts = Timeouts()
    retry: Retry = Retry()
    fallback: tuple[Fallback, ...] = Field(default=(), max_length=10)
    """Whom to ask, in this order, when this provider fails. Their own fallbacks do not count."""

    summary_model: str | None = None
    models: tuple[Model, ...] = Field(min_length=1)
    comment: str | None = None

    def entry_for(self, model: str) -> Model | None:
        """The entry of that name, or else the longest that begins it; None: there is none."""
        fitting = [entry for entry in self.models if entry.answers_for(model)]
        return max(fitting, key=lambda entry: len(entry.name), default=None)


class Providers(_Entry):
    """The whole file."""

    providers: tuple[Provider, ...]
    comment: str | None = None

    @model_validator(mode="after")
    def _keys_are_unique(self) -> Providers:
        keys = [provider.key for provider in self.providers]
        if twice := {key for key in keys if keys.count(key) > 1}:
            raise ValueError(f"provider keys must be unique; used twice: {sorted(twice)}")
        return self

    @model_validator(mode="after")
    def _fallbacks_exist(self) -> Providers:
        by_key = {provider.key: provider for provider in self.providers}
        for provider in self.providers:
            for fallback in provider.fallback:
                key, _, model = fallback.partition("/")
                if key not in by_key or by_key[key].entry_for(model) is None:
                    raise ValueError(f"provider {provider.key!r}: fallback {fallback!r} names no model of this file")
        return self
