"""The script format: rules that choose a reply, and the steps of a reply.

Its terms belong to no provider; each protocol converts steps to its own frames.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import orjson
from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel

from headrace.regular_files import read_regular_file
from services.simulator.model_request import ModelRequest

TIMES_MAX = 1_000_000
"""Maximum repetitions; more would take minutes even without a pace, and are probably a mistake."""


Texts = Annotated[tuple[str, ...], BeforeValidator(lambda value: [value] if isinstance(value, str) else value)]
"""One text or a list of them; each is sent separately."""

FILE_BYTES_MAX = 64 * 1024 * 1024


class _ScriptModel(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True)


class Reasoning(_ScriptModel):
    """Reasoning deltas."""

    reasoning: Texts


class Content(_ScriptModel):
    """Answer deltas."""

    content: Texts


class Repeat(_ScriptModel):
    """One answer delta, repeated."""

    repeat: str
    times: int = Field(ge=1, le=TIMES_MAX)


class ToolCall(_ScriptModel):
    """A tool call: a first fragment with id and name, then one fragment for each of `arguments`."""

    tool_call: str
    """The tool's name."""

    id: str
    index: int = 0
    arguments: Texts = ()


class Frame(_ScriptModel):
    """Any whole frame in the protocol's own form, to misbehave: odd deltas, errors in a 200."""

    frame: dict[str, Any]


class Raw(_ScriptModel):
    """Bytes to write unchanged: each character is one byte (latin-1), each text one write."""

    raw: Texts


class UsageReport(_ScriptModel):
    """The usage frame in the protocol's own form, sent even if not requested."""

    usage: dict[str, Any]


class Finish(_ScriptModel):
    """The finish reason."""

    finish: str


class Wait(_ScriptModel):
    """Silence."""

    wait_ms: float


class Stall(_ScriptModel):
    """Silence until the client leaves."""

    stall: Literal[True] = True


class Cut(_ScriptModel):
    """A connection reset."""

    cut: Literal[True] = True


class End(_ScriptModel):
    """The end of the body, well-formed for HTTP, without the frames that normally end a reply."""

    end: Literal[True] = True


class Refusal(_ScriptModel):
    """An HTTP error instead of an answer; the only step of its reply."""

    status: int = Field(ge=400, le=599)
    headers: dict[str, str] = {}
    body: Any = None
    """JSON; a text is sent unchanged, None is an error object in the protocol's own form."""


_KEYS = {
    "reasoning": Reasoning,
    "content": Content,
    "repeat": Repeat,
    "toolCall": ToolCall,
    "frame": Frame,
    "raw": Raw,
    "usage": UsageReport,
    "finish": Finish,
    "waitMs": Wait,
    "stall": Stall,
    "cut": Cut,
    "end": End,
    "status": Refusal,
}
"""A step is an object with exactly one of these keys, which names its kind."""


def _find_key(step: object) -> str | None:
    keys = step.keys() if isinstance(step, dict) else ()
    if isinstance(step, BaseModel):
        return next((key for key, cls in _KEYS.items() if isinstance(step, cls)), None)
    return next((key for key in _KEYS if key in keys), None)


Step = Annotated[
    Annotated[Reasoning, Tag("reasoning")]
    | Annotated[Content, Tag("content")]
    | Annotated[Repeat, Tag("repeat")]
    | Annotated[ToolCall, Tag("toolCall")]
    | Annotated[Frame, Tag("frame")]
    | Annotated[Raw, Tag("raw")]
    | Annotated[UsageReport, Tag("usage")]
    | Annotated[Finish, Tag("finish")]
    | Annotated[Wait, Tag("waitMs")]
    | Annotated[Stall, Tag("stall")]
    | Annotated[Cut, Tag("cut")]
    | Annotated[End, Tag("end")]
    | Annotated[Refusal, Tag("status")],
    Discriminator(
        _find_key, custom_error_type="unknown_step", custom_error_message=f"a step has one of the keys {[*_KEYS]}"
    ),
]


class Reply(_ScriptModel):
    """The steps of an answer.

    Finish reason, usage and end marker are added automatically unless steps contain them.
    """

    steps: tuple[Step, ...]

    pace_ms: float | None = None
    """Time before each delta; None for the server's own."""

    first_delta_delay_ms: float = 0
    """Silence between the first, empty frame and the first delta."""

    opening: bool = True
    """Whether the protocol's empty first frame is sent; False for a recorded stream, which contains one."""

    one_byte_writes: bool = False
    """Whether every byte is written to the socket separately."""

    def expand_repeats(self) -> Reply:
        """Return the reply with repeated deltas as separate ones, for all writers except the paced one."""
        steps = (
            Content(content=(step.repeat,) * step.times) if isinstance(step, Repeat) else step for step in self.steps
        )
        return self.model_copy(update={"steps": tuple(steps)})


class Match(_ScriptModel):
    """The conditions of a rule; all given ones must hold."""

    text: str | None = None
    """A regular expression, searched for in the last user message."""

    model: str | None = None

    turn: int | None = None
    """1 for the answer to a user message, 2 after its first tool results, and so on."""

    field: str | None = None
    """A field that the request's body must have, as in `reasoning.effort`."""


class Rule(Reply):
    """A reply and its conditions."""

    match: Match = Match()


_RULES = TypeAdapter(tuple[Rule, ...])


class BadScript(Exception):
    """The script is invalid; the message has place and reason."""


def read_script(path: Path) -> tuple[Rule, ...]:
    """Read a file's rules.

    Raises:
        BadScript: It is not JSON, or not a script.
    """
    try:
        return parse_script(orjson.loads(read_regular_file(path, FILE_BYTES_MAX)))
    except (OSError, orjson.JSONDecodeError) as error:
        raise BadScript(f"{path}: {error}") from error


def parse_script(data: object) -> tuple[Rule, ...]:
    """Parse the rules of a decoded JSON list.

    Raises:
        BadScript: It is not a script.
    """
    try:
        rules = _RULES.validate_python(data)
    except ValidationError as error:
        first = error.errors()[0]
        raise BadScript(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    for number, rule in enumerate(rules):
        if len(rule.steps) > 1 and any(isinstance(step, Refusal) for step in rule.steps):
            raise BadScript(f"{number}.steps: a status is the only step of its reply")
    return rules


def find_rule(rules: Sequence[Rule], request: ModelRequest, body: Any) -> Rule | None:
    """Return the first matching rule, or None."""
    return next((rule for rule in rules if _matches_rule(rule, request, body)), None)


def _matches_rule(rule: Rule, request: ModelRequest, body: Any) -> bool:
    match = rule.match
    return (
        (match.model is None or match.model == request.model)
        and (match.turn is None or match.turn == request.turn)
        and (match.text is None or re.search(match.text, request.text) is not None)
        and (match.field is None or _has_field(body, match.field.split(".")))
    )


def _has_field(body: Any, names: Sequence[str]) -> bool:
    for name in names:
        if not isinstance(body, dict) or name not in body:
            return False
        body = body[name]
    return True
