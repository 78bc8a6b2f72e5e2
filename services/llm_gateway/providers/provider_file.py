"""The provider file's format: pydantic models of providers.json."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator
from pydantic.alias_generators import to_camel

Key = Annotated[str, StringConstraints(pattern=r"^[\w.-]{1,128}$")]
SecretName = Annotated[str, StringConstraints(pattern=r"^(env:\w+|file:.+)$")]
"""Where a secret is: `env:NAME` or `file:/path`; never the secret itself."""

SEPARATORS = "-.:@/_"
"""Characters that may follow a configured model name in the name of a model that it answers for."""

Fallback = Annotated[str, StringConstraints(pattern=r"^[\w.-]{1,128}/.{1,256}$")]
"""`provider/model`; the model's own name may hold further slashes."""


class _Entry(BaseModel):
    # Input is hidden in errors: someone may have written a key where a name belongs.
    model_config = ConfigDict(
        extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True, hide_input_in_errors=True
    )


class Quota(_Entry):
    """Limits of the account at the provider, whichever of its keys is used. Each gateway keeps to its even part
    (HEADRACE_LLM_GATEWAY_REPLICAS). A call over the quota waits in a line of at most 100, up to its deadline."""

    requests_per_minute: int | None = Field(default=None, gt=0)
    """Requests in any 60 s. Left out, no limit."""

    tokens_per_minute: int | None = Field(default=None, gt=0)
    """Input and output tokens in any 60 s; a call reserves an estimate and corrects it at its end. Left out, no
    limit."""

    concurrency: int | None = Field(default=None, gt=0)
    """Requests at a time. Left out, no limit."""


class Timeouts(_Entry):
    """How long the provider may stay silent."""

    connect_ms: int = Field(default=5_000, gt=0)
    """Milliseconds to open a connection, TLS included. Over it: PROVIDER_UNAVAILABLE."""

    first_delta_ms: int = Field(default=20_000, gt=0)
    """Milliseconds from the request to the first reasoning, content or tool call; frames without any do not count. A
    model that thinks unseen needs more than the default. Over it: STREAM_STALLED."""

    idle_ms: int = Field(default=60_000, gt=0)
    """Milliseconds without a byte after the first delta. Over it: STREAM_STALLED."""


class Retry(_Entry):
    """How often a call is tried."""

    max_attempts: int = Field(default=3, gt=0, le=10)
    """Attempts at this provider, the first included; 1: no repeat. Fallbacks have their own number. Only attempts that
    failed before any delta reached the caller are repeated, and no 4xx but 408, 409 and 429."""


class Price(_Entry):
    """US dollars for a million tokens, from which usage.costUsd and maxCostUsd are counted."""

    input_per_m_tok: float = Field(default=0, ge=0)
    """US dollars for a million input tokens, cached ones included."""

    output_per_m_tok: float = Field(default=0, ge=0)
    """US dollars for a million output tokens, reasoning included."""


class Model(_Entry):
    """One model of a provider."""

    name: str = Field(min_length=1, max_length=256)
    """The model's name at the provider. The entry also answers for every model whose name goes on after it with one of
    `-.:@/_`: `gpt-4o` for `gpt-4o-2024-08-06`. Of several that fit, the longest counts."""

    context_window: int = Field(default=0, ge=0)
    """Tokens of request and answer together. 0: taken from the built-in table of models, else 32,768."""

    max_output: int = Field(default=0, ge=0)
    """Greatest number of tokens in one answer; as many are kept free in the window, but never more than half of it. 0:
    taken from the built-in table of models, else 4,096."""

    encoding: str | None = None
    """How tokens are counted: `o200k_base` or `cl100k_base`, for models of OpenAI's that the built-in table does not
    know. Other models are estimated, by a ratio that their reported usage corrects."""

    capabilities: tuple[Literal["tools", "reasoning", "vision"], ...] = ()
    """Abilities of the model. Reasoning wishes go only to models with `reasoning`. Images go to models with `vision`,
    and to those that list nothing. `tools` is for people."""

    price: Price | None = None
    """Prices of the model's tokens. Left out, the model costs nothing, and no cost is reported."""

    comment: str | None = None
    """For people."""

    def answers_for(self, name: str) -> bool:
        return name == self.name or (name.startswith(self.name) and name[len(self.name)] in SEPARATORS)


class Provider(_Entry):
    """One account at one provider."""

    key: Key
    """Names the provider in agent files; 1 to 128 letters, digits, `_`, `.` or `-`, unique in the file."""

    protocol: Literal["openai", "anthropic"]
    """`openai`: chat completions (OpenAI, Bailian, SiliconFlow, DeepSeek, vLLM, OpenRouter, MiniMax …). `anthropic`:
    messages."""

    base_url: str = Field(pattern=r"^(https?://[^\s/?#]+[^\s?#]*|env:\w+)$")
    """Address as the provider's documentation gives it, with the version at its end (`https://api.openai.com/v1`); or
    `env:NAME`, a variable of the gateway's environment that holds it."""

    api_keys: tuple[SecretName, ...] = ()
    """Where the keys are: `env:NAME` or `file:/path`, never a key itself. The first that is set is used, the next one
    when the provider refuses it with 401. Left out, calls carry no credential."""

    reasoning: Literal[
        "reasoning_effort",
        "enable_thinking",
        "thinking",
        "reasoning",
        "chat_template_kwargs",
        "reasoning_split",
        "adaptive",
    ] = "reasoning_effort"
    """The provider's own form of a reasoning wish: `reasoning_effort` (OpenAI), `enable_thinking` (Bailian,
    SiliconFlow), `thinking` (DeepSeek), `reasoning` (OpenRouter), `chat_template_kwargs` (vLLM), `reasoning_split` or
    `adaptive` (MiniMax). For protocol anthropic: `adaptive` for models that decide themselves how long to think,
    anything else gives a budget of tokens."""

    output_limit: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """The provider's word for the greatest number of tokens to produce; protocol openai only."""

    quota: Quota | None = None
    """Limits of the account. Left out, the gateway sets none."""

    timeouts: Timeouts = Timeouts()
    """How long the provider may stay silent."""

    retry: Retry = Retry()
    """How often a call is tried."""

    fallback: tuple[Fallback, ...] = Field(default=(), max_length=10)
    """`provider/model` of this file, asked in this order when this provider fails before any delta reached the caller.
    Their own fallbacks do not count."""

    summary_model: str | None = None
    """A cheaper model of this provider that writes the summaries of compactions. Left out, the agent's own model
    does."""

    models: tuple[Model, ...] = Field(min_length=1)
    """The models that may be asked; at least one."""

    comment: str | None = None
    """For people."""

    def find_entry(self, model: str) -> Model | None:
        """Return the entry of that name, or else its longest prefix."""
        fitting = [entry for entry in self.models if entry.answers_for(model)]
        return max(fitting, key=lambda entry: len(entry.name), default=None)


class Providers(_Entry):
    """The whole file."""

    providers: tuple[Provider, ...]
    """The accounts, in any order."""

    comment: str | None = None
    """For people."""

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
                if key not in by_key or by_key[key].find_entry(model) is None:
                    raise ValueError(f"provider {provider.key!r}: fallback {fallback!r} names no model of this file")
        return self
