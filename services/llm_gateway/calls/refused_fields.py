"""Fields that a model has refused, or missed: the request is repeated without or with them, and so are later requests
from the start."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from itertools import pairwise, repeat
from typing import Any, TypeAlias

import orjson
import structlog

from headrace.errors import HeadraceError, InvalidRequest
from services.llm_gateway.protocols.gemini.request import NO_SIGNATURE
from services.llm_gateway.providers.provider_file import Model, Provider
from services.runtime.newest import NewestDict

log = structlog.get_logger()

Path: TypeAlias = "tuple[str, ...]"
"""Names of a field of the body, the outermost first."""

REMEMBERED_MAX = 64
"""Maximum values per model; the oldest is dropped first, which costs one more request."""

STATUSES = ("400", "422")

_OPTIONAL = frozenset(
    {
        "temperature",
        "topp",
        "paralleltoolcalls",
        "disableparalleltooluse",
        "toolchoice",
        "functioncallingconfig",
        "reasoning",
        "reasoningeffort",
        "summary",
        "include",
        "effort",
        "enablethinking",
        "thinking",
        "thinkingbudget",
        "thinkingconfig",
        "thinkinglevel",
        "chattemplatekwargs",
        "reasoningsplit",
        "additionalmodelrequestfields",
        "streamoptions",
    }
)
"""Fields that do not change the kind of an answer. Names are written without underscores and in lower case here."""

_REASONING = ("reasoning", "reasoningeffort", "enablethinking", "thinking", "thinkingconfig", "chattemplatekwargs")
"""Fields that an error means which only says "thinking" or "reasoning"."""

_DEPTH_MAX = 3
"""Levels at which optional fields are looked for, as in Gemini's generationConfig.thinkingConfig.thinkingLevel."""

FORM: Path = ("response_format",)
"""The field of an answer's form, in any protocol; without it, the form is described in words."""

_FORM_NAMES = frozenset({"response_format", "format", "outputConfig", "responseJsonSchema"})

SCHEMA: Path = ("response_format", "schema")
"""The schema of a form; without it, this form alone is described in words."""

CACHE: Path = ("cache_control",)
"""The marks of what the provider may cache, in any protocol."""

SYSTEM: Path = ("system",)
"""The instructions, which some models accept only as a part of the user's message."""

STREAM: Path = ("stream",)
"""The answer's form as a stream, which some models of Bedrock lack with tools."""

TEXT_WITH_CALLS: Path = ("text_with_calls",)
"""Texts in the same turn as calls and results, which some models of Bedrock refuse."""

REPAIRABLE = (SYSTEM, STREAM, TEXT_WITH_CALLS)
"""Parts that every request may have, and that can have another form."""

_TOOL_CHOICE: Path = ("tool_choice",)

_OTHER_NAMES = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}

MESSAGES = "messages"

_OF_CALLS: Mapping[str, Any] = {
    "reasoning_content": " ",
    "extra_content": {"google": {"thought_signature": NO_SIGNATURE}},
    "content": "",
}
"""Fields that some models require of calls in the conversation, with a value for calls without."""

_OPTIONAL_OF_CALLS = {(MESSAGES, field): "" for field in _OF_CALLS}

_REFUSALS: Mapping[Path, re.Pattern[str]] = {
    # Google (https://github.com/0xPlaygrounds/rig/issues/788, 2025-09), Bedrock, OpenAI, templates of Gemma and Mistral
    SYSTEM: re.compile(
        r"developer instruction is not enabled"
        r"|system (?:role|messages?|prompts?|instructions?) (?:is |are )?not supported"
        r"|n[o']t support (?:the )?(?:system (?:role|messages?|prompts?|instructions?)|'system')",
        re.IGNORECASE,
    ),
    # https://github.com/earendil-works/pi/issues/3739 (2026-04)
    STREAM: re.compile(r"tool use in streaming mode", re.IGNORECASE),
    # https://github.com/quarkiverse/quarkus-langchain4j/issues/1983 (2025-11)
    TEXT_WITH_CALLS: re.compile(
        r"blocks and tool (?:use|result) blocks cannot be provided in the same turn", re.IGNORECASE
    ),
    # DeepSeek (https://github.com/BerriAI/litellm/pull/31466, 2026-06), Claude on Vertex AI
    # (https://github.com/OpenHands/software-agent-sdk/issues/1630, 2026-01), Bedrock and Gemma of a schema; Groq,
    # Gemini and llama.cpp of a form next to tools (https://github.com/vercel/ai/pull/16540, 2026-07); OpenAI and
    # Bailian of messages without the word (https://github.com/agno-agi/agno/pull/5317, 2025-11). A bad schema is the
    # caller's.
    FORM: re.compile(
        r"response.?format\b.{0,80}\b(?:unavailable|unsupported|not support|must be|enabled only|cannot be combined"
        r"|not (?:be )?(?:available|allowed))"
        r"|(?:n[o']t support|unsupported|unknown name).{0,80}"
        r"(?:response.?format|output.?(?:config|format)|json.?schema|structured output)"
        r"|(?:(?:output|text).?(?:config|format)(?!\.\w+\.s)|json mode|structured outputs?)\b.{0,80}"
        r"(?:unsupported|not (?:support|enabled|available)|extra inputs)"
        r"|must contain the word 'json'|json mode cannot|grammar constraints with tools"
        r"|response mime type\b.{0,80}\bunsupported",
        re.IGNORECASE,
    ),
    # Gemini and Claude of schemas that they cannot enforce; Gemini may give no reason
    # (https://github.com/googleapis/python-genai/issues/660, 2025-04;
    # https://github.com/googleapis/python-aiplatform/issues/4301, 2024-12)
    SCHEMA: re.compile(
        r"too many (?:states|optional|union)|schema (?:is )?too (?:complex|large|deep)|grammar (?:is )?too large"
        r"|grammar compilation|contains an invalid argument",
        re.IGNORECASE,
    ),
    # Models of Bedrock, and gateways (https://github.com/earendil-works/pi/issues/2053, 2026-03)
    CACHE: re.compile(
        r"cache_?(?:control|point)\b.{0,80}(?:not (?:be )?(?:permitted|supported|allowed)|unsupported|extra inputs)"
        r"|(?:n[o']t support|unsupported|unknown|unrecognized|unexpected).{0,80}cache_?(?:control|point)",
        re.IGNORECASE,
    ),
    # Kimi and DeepSeek of calls that another model made (https://github.com/openclaw/openclaw/issues/10085, 2026-02)
    (MESSAGES, "reasoning_content"): re.compile(
        r"reasoning_content\b.{0,80}\b(?:missing|passed back)|missing\b.{0,20}\breasoning_content"
    ),
    # Gemini in its compatible API (https://github.com/crmne/ruby_llm/issues/591, 2026-02)
    (MESSAGES, "extra_content"): re.compile(r"missing a .{0,2}thought_signature"),
    # Cloudflare and Ollama (https://github.com/zeroclaw-labs/zeroclaw/pull/9493,
    # https://github.com/SAIL-Research-Lab/cheetahclaws/pull/72, 2026)
    (MESSAGES, "content"): re.compile(
        r"\bcontent\b(?!\.).{0,40}\b(?:null|field required|(?:valid|be a) string)|content type: <nil>", re.IGNORECASE
    ),
}
"""What vendors say of fields and parts that they do not name, or name in words of their own."""

_SAYS_UNSUPPORTED = re.compile(
    r"unsupported|(?:not?|n't) (?:be )?support|not (?:be )?(?:permitted|allowed|compatible|available|enabled)"
    r"|unrecognized|unknown|unexpected|deprecated|extra[_ ](?:inputs|forbidden)|only the default"
    r"|only \S{1,20} is allowed|may only be|cannot (?:specify )?both|cannot be disabled|only works|restricted to"
    r"|invalid tool_choice",
    re.IGNORECASE,
)
_NO_ENDPOINT = "No endpoints found"
"""What OpenRouter says, with status 404, of a field that no provider of the model supports
(https://github.com/zed-industries/zed/issues/36094, 2025-08)."""

_ALLOWED_VALUES = re.compile(r"\b(\w{1,64})\W{1,3}must be one of", re.IGNORECASE)
_WORD = re.compile(r"[A-Za-z_]+")


class RefusedFields:
    """Refused fields of all models, by provider and entry.

    The value is stored with its field: one caller's refused value must not remove the field for all others. Nor must an
    error that repeats a caller's words: a call keeps what it leaves out to itself until a model accepts the rest.
    """

    def __init__(self, shared: RefusedFields | None = None) -> None:
        """`shared` are the fields of all calls, which the fields of one call extend."""
        self._shared = shared
        self._by_model: dict[tuple[str, str], NewestDict[tuple[Path, bytes], str]] = {}
        """The errors that refused them, by model, path and value."""

    def __len__(self) -> int:
        return sum(map(len, self._by_model.values()))

    def list_fields(self, provider: Provider, entry: Model) -> list[str]:
        return sorted({".".join(path) for path, _ in self.find_refused(provider, entry)})

    def find_refused(self, provider: Provider, entry: Model) -> set[tuple[Path, bytes]]:
        """Return the fields that the model has refused, with their values as JSON."""
        own = set(self._by_model.get((provider.key, entry.name), ()))
        return own if self._shared is None else own | self._shared.find_refused(provider, entry)

    def leave_out(self, provider: Provider, entry: Model, body: dict[str, Any]) -> None:
        """Remove from `body` the fields that were refused before, and add those that were missing."""
        if self._shared is not None:
            self._shared.leave_out(provider, entry, body)
        if not self._by_model:
            return
        for path, value in self._by_model.get((provider.key, entry.name), {}):
            if path[0] == MESSAGES:
                _, field = path
                answers = [message for message in body.get(MESSAGES, ()) if message.get("tool_calls")]
                is_firsts = field == "extra_content"  # the signature is the first call's
                for part in [answer["tool_calls"][0] for answer in answers] if is_firsts else answers:
                    if part.get(field) is None:
                        part[field] = _OF_CALLS[field]
                continue
            parent: Any = body
            for name in path[:-1]:
                parent = parent.get(name) if isinstance(parent, dict) else None
            if not isinstance(parent, dict) or path[-1] not in parent:
                continue
            if other := _OTHER_NAMES.get(path[-1]):
                parent[other] = parent.pop(path[-1])
                continue
            if orjson.dumps(parent[path[-1]]) != value:
                continue
            if (tool := _get_tool_name(parent.pop(path[-1]))) and path == _TOOL_CHOICE:
                # The tool is forced without its name, by being offered alone.
                tools = [one for one in body["tools"] if _get_tool_name(one) == tool]
                body |= {"tool_choice": "required", "tools": tools}

    def add(self, provider: Provider, entry: Model, path: Path, value: Any, said: str) -> None:
        """Omit the field with this value from now on."""
        encoded = b"" if path[-1] in _OTHER_NAMES else orjson.dumps(value)
        self.add_encoded((provider.key, entry.name), path, encoded, said)

    def add_encoded(self, model: tuple[str, str], path: Path, value: bytes, said: str) -> None:
        """Like `add`, with the value as JSON."""
        self._by_model.setdefault(model, NewestDict(REMEMBERED_MAX))[path, value] = said

    def share(self) -> None:
        """Omit for all calls what this one has left out before its model accepted the rest."""
        assert self._shared is not None, "these are one call's"
        for model, fields in self._by_model.items():
            for (path, value), said in fields.items():
                self._shared.add_encoded(model, path, value, said)
                log.warning("field left out", provider=model[0], model=model[1], field=".".join(path), said=said)


def choose_settings(
    refused: Collection[tuple[Path, bytes]], provider: Provider, entry: Model, schema: str
) -> tuple[Provider, Model]:
    """Return the settings, without cache marks or the ability to keep to this schema if these are refused."""
    paths = {path for path, _ in refused}
    if FORM in paths or (SCHEMA in paths and (SCHEMA, orjson.dumps(schema)) in refused):
        abilities = tuple(name for name in entry.capabilities or ("tools",) if name != "json_schema")
        entry = entry.model_copy(update={"capabilities": abilities})
    if CACHE in paths:
        provider = provider.model_copy(update={"prompt_cache": False})
    return provider, entry


def find_optional_fields(body: Mapping[str, Any], depth: int = _DEPTH_MAX) -> dict[Path, Any]:
    """Return the fields of `body`, at any of `depth` levels, that may be omitted or renamed; an object with nothing
    else may be omitted, too."""
    found: dict[Path, Any] = {}
    for name, value in body.items():
        if name in _FORM_NAMES:
            found[FORM] = ""
            continue
        if name == MESSAGES and any(map(dict.get, value, repeat("tool_calls"))):  # no generator: chats are long
            found |= _OPTIONAL_OF_CALLS
        inner: dict[Path, Any] = find_optional_fields(value, depth - 1) if isinstance(value, dict) and depth > 1 else {}
        if FORM in inner:
            found[FORM] = inner.pop(FORM)
        is_optional = inner and all((key,) in inner for key in value)
        if is_optional or _normalise(name) in _OPTIONAL or name in _OTHER_NAMES:
            found[(name,)] = value
        found |= {(name, *path): inner[path] for path in inner}
    return found


def find_refused_field(optional: Mapping[Path, Any], error: HeadraceError) -> Path | None:
    """Return the optional field that the error names: by `param`, or in a message that calls it refused."""
    if not isinstance(error, InvalidRequest):
        return None
    for path, pattern in _REFUSALS.items():
        if path in optional and pattern.search(error.message):
            return path
    has_no_endpoint = _NO_ENDPOINT in error.message
    if error.metadata.get("httpStatus") not in STATUSES and not has_no_endpoint:
        return None
    words = [_normalise(word) for word in _WORD.findall(error.message)]
    allowed = _ALLOWED_VALUES.search(error.message)
    param = error.metadata.get("param", "") or (allowed[1] if allowed else "")
    named = [_normalise(word) for word in _WORD.findall(param)]
    by_name: dict[str, Path] = {}
    for path in (path for path in optional if path not in _REFUSALS):
        other = _OTHER_NAMES.get(path[-1])
        if other is None or _normalise(other) in words or "extraforbidden" in words:
            by_name[_normalise(path[-1])] = path
    # "reasoning.effort" names the innermost field last.
    if (name := next((name for name in reversed(named) if name in by_name), None)) is not None:
        return by_name[name]
    if named or not (has_no_endpoint or _SAYS_UNSUPPORTED.search(error.message)):
        return None
    if "both" in words:
        words.reverse()
    words += [first + second for first, second in pairwise(words)]
    if "messages" not in words and not {"thinking", "reasoning"}.isdisjoint(words):
        words += _REASONING
    return next((by_name[word] for word in words if word in by_name), None)


def _get_tool_name(value: Any) -> str:
    """Return the name of a tool, or of the choice of one, of chat completions and Responses; empty for others."""
    if not isinstance(value, dict) or value.get("type") != "function":
        return ""
    return value.get("function", value).get("name", "")


def _normalise(name: str) -> str:
    return name.replace("_", "").lower()
