"""The provider file's format: pydantic models of providers.json."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, model_validator
from pydantic.alias_generators import to_camel

from headrace.v1.common_pb2 import Usage
from services.runtime.tokens.model_table import known_facts
from services.runtime.usage import round_cost

# Lengths are not part of the patterns: a counted repetition is compiled once for each count, which took 40 MB in all
# (pydantic-core 2.x, 2026-11).
Key = Annotated[str, StringConstraints(pattern=r"^[\w.-]+$", max_length=128)]


def _check_secret_name(name: str) -> str:
    if not re.fullmatch(r"env:\w+|file:.+", name):
        raise ValueError("must be env:NAME or file:/path, never the secret itself")
    return name


SecretName = Annotated[str, AfterValidator(_check_secret_name)]
"""Source of a secret: `env:NAME` or `file:/path`; never the secret itself."""

SEPARATORS = "-.:@/_"
"""Characters that may follow a configured model name in the name of a matching model."""

HeaderName = Annotated[str, StringConstraints(pattern=r"^[\w!#$%&'*+.^`|~-]+$", max_length=128)]

HeaderValue = Annotated[str, StringConstraints(pattern=r"^[\t\x20-\x7e]*$", max_length=8192)]
"""Text, or `env:NAME` or `file:/path` if the value is a secret."""

OWN_HEADERS = frozenset(
    {"host", "content-length", "content-type", "accept-encoding", "connection", "transfer-encoding"}
)
"""Headers that only the gateway sets."""

OWN_BODY_FIELDS = frozenset({"model", "messages", "input", "contents", "stream"})
"""Fields of a request's body that only the gateway sets."""


def _refuse_own_headers(headers: dict[str, str]) -> dict[str, str]:
    if own := sorted(name for name in headers if name.lower() in OWN_HEADERS):
        raise ValueError(f"the gateway sets {own} itself")
    return headers


def _refuse_own_fields(fields: dict[str, Any]) -> dict[str, Any]:
    if own := sorted(OWN_BODY_FIELDS & fields.keys()):
        raise ValueError(f"the gateway sets {own} itself")
    return fields


KEEPING_PROTOCOLS = frozenset({"openai_responses", "gemini", "bedrock"})
"""With these protocols, a request extends the previous one, as the provider's cache needs, only if it keeps the
thoughts."""

Headers = Annotated[dict[HeaderName, HeaderValue], Field(max_length=64), AfterValidator(_refuse_own_headers)]
ExtraBody = Annotated[dict[str, Any], Field(max_length=64), AfterValidator(_refuse_own_fields)]

TenantName = Annotated[str, StringConstraints(pattern=r"^[!-~]+$", max_length=128)]
Weight = Annotated[int, Field(ge=1, le=1000)]

Capability = Literal["tools", "reasoning", "vision", "audio", "files", "json_schema", "embeddings"]

Unsupported = Literal[
    "temperature",
    "temperature_with_reasoning",
    "top_p",
    "top_p_with_reasoning",
    "parallel_tool_calls",
    "tool_choice",
    "tool_choice_by_name",
    "tool_choice_with_reasoning",
    "tools_with_reasoning",
    "reasoning",
    "reasoning_budget",
    "reasoning_off",
]

Fallback = Annotated[str, StringConstraints(pattern=r"^[\w.-]+/.+$", max_length=128 + 1 + 256)]
"""`provider/model`; the model's own name may contain further slashes."""


class _Entry(BaseModel):
    # Errors hide the input: a user may have written a key instead of a name.
    model_config = ConfigDict(
        extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True, hide_input_in_errors=True
    )


class Quota(_Entry):
    """Limits of the account at the provider, whichever of its keys is used. Each gateway keeps to an equal part
    (HEADRACE_LLM_GATEWAY_REPLICAS). A call over the quota waits in its tenant's queue of at most 100 calls, up to its
    deadline. If several tenants wait, the one with the smallest share of the quota comes next."""

    requests_per_minute: int | None = Field(default=None, gt=0)
    """Maximum requests in any 60 s. By default unlimited."""

    tokens_per_minute: int | None = Field(default=None, gt=0)
    """Maximum input and output tokens in any 60 s; a call reserves an estimate and corrects it at its end. By default
    unlimited."""

    concurrency: int | None = Field(default=None, gt=0)
    """Maximum concurrent requests. By default unlimited. A tenant with a running request leaves one place free for each
    tenant that has none but had one in the last 15 s, up to half of all places."""

    weights: dict[TenantName, Weight] = Field(default={}, max_length=10_000)
    """Weights of tenants, from 1 to 1,000: with weight 3, a tenant gets three times as much of the quota as one with
    weight 1 if both wait. By default 1."""

    def get_weight(self, tenant: str) -> int:
        return self.weights.get(tenant, 1)


class Timeouts(_Entry):
    """Maximum silence of the provider."""

    connect_ms: int = Field(default=5_000, gt=0)
    """Milliseconds to open a connection, including TLS. After that: PROVIDER_UNAVAILABLE."""

    first_delta_ms: int = Field(default=20_000, gt=0)
    """Milliseconds from the request to the first reasoning, content or tool call; other frames do not count. A model
    with hidden reasoning needs more than the default. After that: STREAM_STALLED."""

    idle_ms: int = Field(default=60_000, gt=0)
    """Milliseconds without a byte after the first delta. After that: STREAM_STALLED."""


class Retry(_Entry):
    """Number of attempts for a call."""

    max_attempts: int = Field(default=3, gt=0, le=10)
    """Attempts at this provider, including the first; 1: no retry. Fallbacks have their own number. Only attempts that
    failed before any delta reached the caller are retried, and of 4xx only 408, 409, 424, 429, 498 and 499."""


class Price(_Entry):
    """Prices in US dollars per million tokens, the basis of usage.costUsd and maxCostUsd."""

    input_per_m_tok: float = Field(default=0, ge=0)
    """US dollars per million input tokens."""

    cached_input_per_m_tok: float | None = Field(default=None, ge=0)
    """US dollars per million input tokens that the provider read from its cache. By default `inputPerMTok`."""

    cache_write_per_m_tok: float | None = Field(default=None, ge=0)
    """US dollars per million input tokens that the provider wrote to its cache. By default `inputPerMTok`."""

    output_per_m_tok: float = Field(default=0, ge=0)
    """US dollars per million output tokens, including reasoning."""

    @property
    def dearest_input_per_m_tok(self) -> float:
        return max(self.input_per_m_tok, self.cached_input_per_m_tok or 0, self.cache_write_per_m_tok or 0)

    def count_dollars(self, usage: Usage) -> float:
        cached = 0.0 if self.cached_input_per_m_tok is None else self.cached_input_per_m_tok - self.input_per_m_tok
        written = 0.0 if self.cache_write_per_m_tok is None else self.cache_write_per_m_tok - self.input_per_m_tok
        dollars = (
            usage.input_tokens * self.input_per_m_tok
            + usage.cached_tokens * cached
            + usage.cache_write_tokens * written
            + usage.output_tokens * self.output_per_m_tok
        ) / 1_000_000
        return round_cost(dollars)


class Model(_Entry):
    """One model of a provider."""

    name: str = Field(min_length=1, max_length=256)
    """The model's name at the provider. The entry also matches every model with a name that continues after it with one
    of `-.:@/_`: `gpt-4o` matches `gpt-4o-2024-08-06`. If several match, the longest applies."""

    context_window: int = Field(default=0, ge=0)
    """Maximum tokens of request and answer together. 0: taken from the built-in table of models, else 32,768."""

    max_output: int = Field(default=0, ge=0)
    """Maximum tokens in one answer; this much is reserved in the window, but never more than half of it. 0: taken from
    the built-in table of models, else 4,096."""

    encoding: str | None = None
    """Encoding for an exact token count: `o200k_base` or `cl100k_base`, for models that the built-in table lacks or has
    wrong. By default, models other than OpenAI's are estimated, with a ratio corrected by their reported usage."""

    capabilities: tuple[Capability, ...] = ()
    """Abilities of the model. Reasoning settings are sent only to models with `reasoning`. Images are sent to models
    with `vision`, sounds (wav, mp3) to those with `audio`, PDF files to those with `files`, and the provider's own
    output format field to those with `json_schema`; all of these also to models that list nothing. Other models get the
    format described in words, and their answer is checked before it is streamed. A model gives vectors
    (`/v1/embeddings`) only if it lists `embeddings`. `tools` is for people."""

    unsupported: tuple[Unsupported, ...] | None = None
    """Parameters that the model does not support. `temperature`, `top_p` and `parallel_tool_calls` are left out, those
    `_with_reasoning` if the request wants reasoning. With `tool_choice`, a forced call becomes a free one; with
    `tool_choice_by_name`, the forced tool is offered alone, as llama.cpp's server requires; with
    `tool_choice_with_reasoning`, a forced call is requested without reasoning; with `tools_with_reasoning`, reasoning
    is not requested if tools are offered (protocol openai only). `reasoning`: no reasoning field is sent;
    `reasoning_budget`: no token budget, which protocol anthropic sends unless `reasoning` is `adaptive`;
    `reasoning_off`: reasoning is never switched off. By default, the built-in table's entry for the model."""

    price: Price | None = None
    """Prices of the model's tokens. By default no cost is reported, and an agent with maxCostUsd uses neither this
    model nor one that may fall back to it, unless its unknownPrice permits it."""

    extra_body: ExtraBody = {}
    """Extra fields of each request's body; they override the provider's."""

    comment: str | None = None
    """A comment for people."""

    @property
    def keeps_to_schemas(self) -> bool:
        return not self.capabilities or "json_schema" in self.capabilities

    def answers_for(self, name: str) -> bool:
        return name == self.name or (name.startswith(self.name) and name[len(self.name)] in SEPARATORS)


def find_window(model: Model) -> int:
    """Return the tokens of request and answer together; 0 if neither the entry nor the built-in table has a value."""
    known = known_facts(model.name)
    return model.context_window or (0 if known is None else known.context_window)


class Provider(_Entry):
    """One account at one provider."""

    key: Key
    """Name of the provider in agent files; 1 to 128 letters, digits, `_`, `.` or `-`, unique in the file."""

    protocol: Literal["openai", "openai_responses", "anthropic", "gemini", "bedrock"]
    """`openai`: chat completions (OpenAI, Bailian, SiliconFlow, DeepSeek, vLLM, OpenRouter, MiniMax …).
    `openai_responses`: OpenAI's Responses, which GPT-5.4 and later need for tools with reasoning. `anthropic`:
    messages. `gemini`: Gemini's own, of the developer platform and of Vertex AI. `bedrock`: Amazon Bedrock's
    Converse."""

    base_url: str = Field(pattern=r"^(https?://[^\s/?#]+[^\s?#]*|env:\w+)$")
    """Base address from the provider's documentation, ending with the version (`https://api.openai.com/v1`); or
    `env:NAME`, a variable of the gateway's environment that contains it."""

    api_keys: tuple[SecretName, ...] = ()
    """Sources of the keys: `env:NAME` or `file:/path`, never a key itself. The first one that is set is used, the next
    one if the provider refuses it. By default, calls carry no credential."""

    credentials: Literal["keys", "aws", "google"] = "keys"
    """Source of credentials: `keys`, from apiKeys; `aws`, from AWS's chain (environment, files, identity of the pod,
    metadata), to sign each request; `google`, from Google's default credentials, for Vertex AI. The last two need the
    extra `cloud`."""

    region: str | None = Field(default=None, pattern=r"^[a-z0-9-]+$", max_length=64)
    """Region for signing requests, with credentials `aws`. By default that of AWS's chain."""

    key_header: HeaderName | None = None
    """Header with the key. By default `Authorization`, or `x-api-key` for protocol anthropic; classic Azure uses
    `api-key`."""

    key_scheme: str | None = Field(default=None, pattern=r"^[\w-]*$", max_length=32)
    """Word before the key in its header. By default `Bearer` in `Authorization` and none in others."""

    prompt_cache: bool = True
    """Whether requests mark the parts that the provider may cache: tools, instructions and the conversation so far.
    Protocol anthropic only; other providers cache automatically."""

    organization: str | None = Field(default=None, pattern=r"^[\x21-\x7e]+$", max_length=256)
    """Value of the header `OpenAI-Organization`."""

    headers: Headers = {}
    """Extra headers of each request, by name. A value `env:NAME` or `file:/path` is looked up at each call, and masked
    in messages and logs."""

    query: dict[str, HeaderValue] = Field(default={}, max_length=64)
    """Parameters of each request's address, such as `api-version`; values as in `headers`."""

    path: str | None = Field(default=None, pattern=r"^/[^\s?#]*$")
    """Path after `baseUrl`. By default, the protocol's own: `/chat/completions`, `/responses`, `/messages`,
    `/models/{model}:streamGenerateContent`. `{model}` in it is replaced by the model's name, as in classic Azure's
    `/openai/deployments/{model}/chat/completions`."""

    extra_body: ExtraBody = {}
    """Extra fields of each request's body; they override the gateway's, and null removes a field."""

    proxy: str | None = Field(default=None, pattern=r"^(http://[^\s/?#]+/?|env:\w+|none)$")
    """Proxy to the provider: `http://[user:password@]host:port`, `env:NAME`, a variable that contains it, or `none`. By
    default `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY` of the gateway's environment."""

    ca_file: str | None = None
    """PEM file of the certificates that authenticate the provider, instead of the system's."""

    cert_file: str | None = None
    """PEM file of the client certificate that the provider requires. Files are read again when they change."""

    key_file: str | None = None
    """PEM file of the client certificate's key; by default it is in `certFile`."""

    reasoning: Literal[
        "reasoning_effort",
        "enable_thinking",
        "thinking",
        "reasoning",
        "chat_template_kwargs",
        "reasoning_split",
        "adaptive",
    ] = "reasoning_effort"
    """The provider's own form of reasoning settings: `reasoning_effort` (OpenAI), `enable_thinking` (Bailian,
    SiliconFlow), `thinking` (DeepSeek), `reasoning` (OpenRouter), `chat_template_kwargs` (vLLM), `reasoning_split` or
    `adaptive` (MiniMax). For protocol anthropic: `adaptive` for models that decide themselves how long to think;
    anything else sends a token budget."""

    output_limit: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """The provider's field for the maximum number of output tokens; protocol openai only."""

    call_ids: Literal["any", "nine_characters"] = "any"
    """Form of the ids of tool calls: `nine_characters` for providers that accept only nine letters and digits, such as
    Mistral; other ids are replaced by one derived from their hash, the same in each request. Protocol openai only."""

    turn_order: Literal["any", "strict"] = "any"
    """`strict` for providers and templates that refuse a user's message after a tool's result, or a conversation that
    does not begin with the user, such as Mistral and Gemma: a short turn of the model or the user is inserted."""

    reasoning_kept: Literal["run", "chat"] | None = None
    """How long a model is shown its reasoning: `run`, until the run has its answer; `chat`, as long as the chat shows
    the calls that it made, for providers that refuse calls without it (DeepSeek, Kimi K3, GLM's coding endpoint). By
    default, `chat` if `reasoning` is `thinking`, and for protocols openai_responses, gemini and bedrock, where thoughts
    are secret and cost nothing; otherwise `run`."""

    begins_in_reasoning: bool = False
    """Whether the model's template opens the reasoning, so that an answer begins with it and `</think>` ends it.
    Protocol openai only."""

    quota: Quota | None = None
    """Limits of the account. By default the gateway enforces none."""

    timeouts: Timeouts = Timeouts()
    """Maximum silence of the provider."""

    retry: Retry = Retry()
    """Number of attempts for a call."""

    fallback: tuple[Fallback, ...] = Field(default=(), max_length=10)
    """`provider/model` of this file, tried in this order if this provider fails before any delta reached the caller.
    Their own fallbacks are not used."""

    summary_model: str | None = None
    """A cheaper model of this provider that writes the summaries of compactions. By default the agent's own model."""

    models: tuple[Model, ...] = Field(min_length=1)
    """The models that may be used; at least one."""

    comment: str | None = None
    """A comment for people."""

    @property
    def keeps_reasoning(self) -> bool:
        is_default = self.reasoning == "thinking" or self.protocol in KEEPING_PROTOCOLS
        return (self.reasoning_kept or ("chat" if is_default else "run")) == "chat"

    def find_entry(self, model: str) -> Model | None:
        """Return the entry with that name, or else the one with its longest prefix."""
        fitting = [entry for entry in self.models if entry.answers_for(model)]
        return max(fitting, key=lambda entry: len(entry.name), default=None)


class Providers(_Entry):
    """The whole file."""

    providers: tuple[Provider, ...]
    """The accounts, in any order."""

    comment: str | None = None
    """A comment for people."""

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
