"""Parses agent files, including triple-quoted texts, and describes their errors."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import Any

import orjson
import structlog
from pydantic import ValidationError

from services.orchestrator.agents.definition.agent import Definition
from services.runtime.files.refused_files import describe_problems, load_config_json

log = structlog.get_logger()


# Ordinary strings are matched too, so that quotes inside them are never taken for an opening.
_TOKEN = re.compile(r'"(?P<key>[^"\\\n]*)"(?P<colon>\s*:\s*)(?:"""(?P<text>.*?)""")?|"(?:[^"\\\n]|\\.)*"', re.DOTALL)


PROMPT = "systemPrompt"
"""The key that is accepted in any case."""


def to_json(source: str) -> str:
    return _TOKEN.sub(_quote_match, source)


def _quote_match(match: re.Match[str]) -> str:
    if match["colon"] is None:
        return match[0]
    key = f'"{PROMPT if match["key"].casefold() == PROMPT.casefold() else match["key"]}"{match["colon"]}'
    if match["text"] is None:
        return key
    text = re.sub(r"\A[ \t]*\r?\n", "", match["text"])
    text = re.sub(r"\r?\n[ \t]*\Z", "", text)
    return key + orjson.dumps(text).decode() + "\n" * match["text"].count("\n")


WITHOUT_EFFECT = frozenset({"retryCount"})
"""Fields that are accepted and ignored; the gateway owns retries."""


class DefinitionError(Exception):
    """Lists the problems of an agent file, one a line, each with field and expectation."""


def parse_agent(source: bytes, file_key: str) -> Definition:
    """Parse an agent file; `file_key` is the key of one that names none.

    Raises:
        DefinitionError: The file is invalid.
    """
    given = load_object(source)
    agent = read_definition({"key": file_key} | given, hashlib.sha256(source).hexdigest()[:16])
    for field in find_ineffective(given):
        log.warning("field has no effect", agent_key=agent.key, field=field)
    return agent


def load_object(source: bytes) -> dict[str, Any]:
    """Return the JSON object of an agent file. Raises DefinitionError."""
    try:
        given = load_config_json(to_json(source.decode("utf-8-sig")))
    except UnicodeDecodeError as error:
        raise DefinitionError(f"not UTF-8 text (byte {error.start})") from None
    except ValueError as error:
        hint = '; write a text of several lines between """ and """' if "control character" in str(error) else ""
        raise DefinitionError(f"{error}{hint}") from None
    if not isinstance(given, dict):
        raise DefinitionError("expected a JSON object")
    return given


def read_definition(given: dict[str, Any], digest: str) -> Definition:
    """Create an agent from a file's JSON or from the output of `Definition.source`.

    Raises:
        DefinitionError: The JSON is not a valid definition.
    """
    try:
        agent = Definition.model_validate(given | {"hash": digest})
    except ValidationError as error:
        raise DefinitionError("\n".join(describe_problems(error, Definition))) from None
    # Chats need not know which share of them gets the file.
    kept = {name: value for name, value in given.items() if name != "canary"}
    agent.take_source(orjson.dumps(kept, option=orjson.OPT_SORT_KEYS))
    return agent


def find_ineffective(given: Any, at: str = "") -> Iterator[str]:
    """Yield the paths of accepted fields that have no effect."""
    if isinstance(given, dict):
        for name, value in given.items():
            path = f"{at}.{name}" if at else name
            if name in WITHOUT_EFFECT:
                yield path
            yield from find_ineffective(value, path)
