"""Encoding, window and greatest answer of models, by the beginning of their name.

The provider file takes precedence. Figures are from the vendors' documentation, 2026-10; for a family, the smallest in
service.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import structlog

if TYPE_CHECKING:
    from services.runtime.tokens.encodings import EncodingName

log = structlog.get_logger()


class ModelFacts(NamedTuple):
    encoding: EncodingName | None
    """The encoding; None if counts are estimates."""

    context_window: int
    """Tokens of request and answer together."""

    max_output: int
    """Tokens of one answer."""


UNKNOWN = ModelFacts(None, 32_768, 4_096)

_K128 = 131_072

_TABLE: dict[str, ModelFacts] = {
    "gpt-3.5": ModelFacts("cl100k_base", 16_385, 4_096),
    "gpt-4": ModelFacts("cl100k_base", 8_192, 4_096),
    "gpt-4-32k": ModelFacts("cl100k_base", 32_768, 4_096),
    "gpt-4-turbo": ModelFacts("cl100k_base", 128_000, 4_096),
    "gpt-4-1106": ModelFacts("cl100k_base", 128_000, 4_096),
    "gpt-4-0125": ModelFacts("cl100k_base", 128_000, 4_096),
    "gpt-4o": ModelFacts("o200k_base", 128_000, 16_384),
    "chatgpt-4o": ModelFacts("o200k_base", 128_000, 16_384),
    "gpt-4.1": ModelFacts("o200k_base", 1_047_576, 32_768),
    "gpt-4.5": ModelFacts("o200k_base", 128_000, 16_384),
    "gpt-5": ModelFacts("o200k_base", 400_000, 128_000),
    "o1": ModelFacts("o200k_base", 200_000, 100_000),
    "o1-preview": ModelFacts("o200k_base", 128_000, 32_768),
    "o1-mini": ModelFacts("o200k_base", 128_000, 65_536),
    "o3": ModelFacts("o200k_base", 200_000, 100_000),
    "o4": ModelFacts("o200k_base", 200_000, 100_000),
    "qwen": ModelFacts(None, 8_192, 2_048),
    "qwen-max": ModelFacts(None, 32_768, 8_192),
    "qwen-plus": ModelFacts(None, _K128, 8_192),
    "qwen-turbo": ModelFacts(None, _K128, 8_192),
    "qwen-long": ModelFacts(None, _K128, 8_192),
    "qwen1.5": ModelFacts(None, 32_768, 2_048),
    "qwen2": ModelFacts(None, 32_768, 8_192),
    "qwen2.5": ModelFacts(None, _K128, 8_192),
    "qwq": ModelFacts(None, _K128, 8_192),
    "qwen3": ModelFacts(None, 262_144, 32_768),
    "deepseek": ModelFacts(None, 65_536, 8_192),
    "deepseek-chat": ModelFacts(None, _K128, 8_192),
    "deepseek-reasoner": ModelFacts(None, _K128, 65_536),
    "deepseek-v3.1": ModelFacts(None, _K128, 32_768),
    "deepseek-v3.2": ModelFacts(None, _K128, 32_768),
    "claude": ModelFacts(None, 200_000, 4_096),
    "claude-3-5": ModelFacts(None, 200_000, 8_192),
    "claude-3-7": ModelFacts(None, 200_000, 64_000),
    "claude-opus-4": ModelFacts(None, 200_000, 32_000),
    "claude-sonnet-4": ModelFacts(None, 200_000, 64_000),
    "claude-haiku-4": ModelFacts(None, 200_000, 64_000),
}


@lru_cache(maxsize=1024)  # names come from requests
def known_facts(model: str) -> ModelFacts | None:
    """Return the facts of the longest name that `model`, without vendor/, begins with, if any."""
    name = model.rpartition("/")[2].lower()
    fitting = [known for known in _TABLE if name.startswith(known)]
    return _TABLE[max(fitting, key=len)] if fitting else None


@lru_cache(maxsize=1024)  # the warning comes once for each name that is remembered
def facts(model: str) -> ModelFacts:
    """Return the known facts; for an unknown model, warn and take the smallest window."""
    if (known := known_facts(model)) is not None:
        return known
    log.warning("model not known, small window assumed", model=model, context_window_tokens=UNKNOWN.context_window)
    return UNKNOWN
