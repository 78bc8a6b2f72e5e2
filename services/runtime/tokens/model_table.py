"""Known facts about models, by the beginning of their name: models.toml. The provider file takes precedence."""

from __future__ import annotations

import re
import tomllib
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import structlog

if TYPE_CHECKING:
    from services.runtime.tokens.count import EncodingName

log = structlog.get_logger()


class ModelFacts(NamedTuple):
    encoding: EncodingName | None
    """The encoding; None if counts are estimates."""

    context_window: int
    """Tokens of request and answer together."""

    max_output: int
    """Tokens of one answer."""

    unsupported: frozenset[str] = frozenset()
    """Parts of a request that the model refuses, in the terms of the provider file."""


UNKNOWN = ModelFacts(None, 32_768, 4_096)

_BEFORE_NAME = re.compile(
    r"^(?:ft:|(?:[a-z-]+\.)?(?:anthropic|amazon|deepseek|google|minimax|mistral|moonshotai?|openai|qwen|zai)\.)"
)
"""Prefixes of the names of tuned models and of Bedrock's."""


def _load_table() -> dict[str, ModelFacts]:
    vendors = tomllib.loads(Path(__file__).with_name("models.toml").read_text())["vendor"]
    return {
        name: ModelFacts(row.get("encoding"), row["window"], row["output"], frozenset(row.get("unsupported", ())))
        for vendor in vendors
        for name, row in vendor["models"].items()
    }


_TABLE = _load_table()


@lru_cache(maxsize=1024)  # names come from requests
def known_facts(model: str) -> ModelFacts | None:
    """Return the facts of the longest name that is a prefix of `model` (without vendor/); None if there is none."""
    name = _BEFORE_NAME.sub("", model.rpartition("/")[2].lower()).replace(".", "-")
    fitting = [known for known in _TABLE if name.startswith(known)]
    return _TABLE[max(fitting, key=len)] if fitting else None


def find_window(model: str, given: int = 0) -> int:
    """Return the tokens of request and answer together: `given`, or the table's value; for an unknown model the
    smallest window in use."""
    return given or facts(model).context_window


@lru_cache(maxsize=1024)  # one warning per remembered name
def facts(model: str) -> ModelFacts:
    """Return the known facts; for an unknown model, warn and use the smallest window."""
    if (known := known_facts(model)) is not None:
        return known
    log.warning("model not known, small window assumed", model=model, context_window_tokens=UNKNOWN.context_window)
    return UNKNOWN
