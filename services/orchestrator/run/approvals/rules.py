"""Parses approvals.yaml, whose patterns are RE2's, linear in the text."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import re2
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic.alias_generators import to_camel

from headrace.v1 import common_pb2
from headrace.yaml_loading import load_yaml
from services.orchestrator.run.approvals.risks import BUILT_IN, RISKS, Risk
from services.runtime.auth.answerer_rule import AnswererRule

Then: TypeAlias = Literal["allow", "ask", "deny"]
OnExpiry: TypeAlias = Literal["reject", "approve"]

ANSWER_TIMEOUT_MS = 300_000
"""An approval without an answer is rejected after this time."""

ACTIONS: dict[Risk, Then] = {"critical": "deny", "high": "ask", "medium": "ask", "low": "allow"}

PATTERN_CHARS_MAX = 2000

_OPTIONS = re2.Options()
_OPTIONS.log_errors = False


class RulesError(Exception):
    """Lists the problems of the file, one a line, with field and rule."""


@dataclass(frozen=True, slots=True)
class Pattern:
    label: str

    search: Any

    def matches(self, text: str) -> bool:
        return self.search.search(text) is not None


@dataclass(frozen=True, slots=True)
class ToolRule:
    pattern: Pattern
    then: Then
    argument: str | None
    """None means every argument."""
    answerers: common_pb2.Answerers | None
    """None leaves it to the tool's definition."""
    on_expiry: OnExpiry

    @property
    def ground(self) -> str:
        """What the rule is called in grants: the same for no other rule of the tool that could ask."""
        return f"{self.pattern.label} in {'any argument' if self.argument is None else f'argument {self.argument!r}'}"


@dataclass(frozen=True, slots=True)
class Rules:
    tools: dict[str, tuple[ToolRule, ...]] = field(default_factory=dict[str, tuple[ToolRule, ...]])
    """Rules by case-folded tool name."""

    risks: tuple[tuple[Risk, Pattern], ...] = ()

    actions: dict[Risk, Then] = field(default_factory=lambda: dict(ACTIONS))
    answer_timeout_ms: int = ANSWER_TIMEOUT_MS
    answerers: common_pb2.Answerers | None = None
    """For approvals of which neither a rule nor the tool says it; None: the requester."""


class _Part(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)


def _compile_pattern(pattern: str, label: str = "") -> Pattern:
    try:
        return Pattern(label or f"matches {pattern!r}", re2.compile(pattern, _OPTIONS))
    except re2.error as error:
        why = error.args[0].decode() if isinstance(error.args[0], bytes) else error
        raise ValueError(f"not a pattern that RE2 takes: {why}") from None


class _ToolRule(_Part):
    pattern: str = Field(max_length=PATTERN_CHARS_MAX)
    """RE2 regular expression, searched for in the strings of the call's arguments; 2,000 characters at most."""

    then: Then
    """`allow` runs a call that matches, `ask` asks a person, `deny` refuses it. `allow` must match every string that is
    looked at, `ask` and `deny` any of them."""

    argument: str | None = None
    """Name of the only argument to look at, with what is nested in it. Left out, all arguments."""

    answerers: AnswererRule | None = None
    """Who may answer what this rule asks. Left out, as the tool's definition says, then as `answerers` of this file."""

    on_expiry: OnExpiry = "reject"
    """What nobody's answer in time is, with `then: ask`: `approve` runs the call as the model made it, unless somebody
    has voted on it."""

    @model_validator(mode="after")
    def _check_expiry(self) -> _ToolRule:
        if self.on_expiry == "approve" and self.then != "ask":
            raise ValueError(f"onExpiry: only a rule with then: ask has it, and this one has {self.then}")
        return self

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, pattern: str) -> str:
        _compile_pattern(pattern)
        return pattern


class _File(_Part):
    tools: dict[str, tuple[_ToolRule, ...]] = {}
    """Rules by the tool's name, without regard to case; the first that matches decides, before the tool's own
    `approval` and before the risks."""

    risks: dict[Risk, tuple[str, ...]] = {}
    """RE2 patterns by risk level, looked for in every string of the arguments and in their JSON text; before the
    built-in ones of the level."""

    actions: dict[Risk, Then] = {}
    """Action by risk level, by default critical deny, high ask, medium ask, low allow."""

    builtin_risks: bool = True
    """Whether the built-in patterns are in force."""

    answer_timeout_ms: int = Field(default=ANSWER_TIMEOUT_MS, gt=0)
    """How long an approval waits for a person, in milliseconds, before the call is rejected. Waiting is not charged to
    the run's time."""

    answerers: AnswererRule | None = None
    """Who may answer where neither the rule that asks nor the tool's definition says it. Left out, the requester. For
    approvals: who may fill in a form or answer a question is said in the tool's definition alone."""

    @field_validator("risks")
    @classmethod
    def _compile(cls, risks: dict[Risk, tuple[str, ...]]) -> dict[Risk, tuple[str, ...]]:
        for patterns in risks.values():
            for pattern in patterns:
                _compile_pattern(pattern)
        return risks


def parse(source: bytes) -> Rules:
    try:
        given = load_yaml(source) or {}
    except ValueError as error:
        raise RulesError(str(error)) from None
    if not isinstance(given, dict):
        raise RulesError("expected a mapping with tools, risks and actions")
    try:
        file = _File.model_validate(given)
    except ValidationError as error:
        raise RulesError("\n".join(_describe_problem(item) for item in error.errors())) from None
    return _make_rules(file)


def _make_rules(file: _File) -> Rules:
    tools = {name.casefold(): tuple(map(_make_tool_rule, rules)) for name, rules in file.tools.items()}
    risks: list[tuple[Risk, Pattern]] = []
    for risk in RISKS:
        for pattern in file.risks.get(risk, ()):
            risks.append((risk, _compile_pattern(pattern)))
        for label, pattern in BUILT_IN[risk].items() if file.builtin_risks else ():
            risks.append((risk, _compile_pattern(pattern, label)))
    answerers = file.answerers.make_answerers() if file.answerers is not None else None
    return Rules(tools, tuple(risks), ACTIONS | file.actions, file.answer_timeout_ms, answerers)


def _make_tool_rule(rule: _ToolRule) -> ToolRule:
    answerers = rule.answerers.make_answerers() if rule.answerers is not None else None
    return ToolRule(_compile_pattern(rule.pattern), rule.then, rule.argument, answerers, rule.on_expiry)


def _describe_problem(item: Any) -> str:
    name = ".".join(str(part) for part in item["loc"])
    text = item["msg"].removeprefix("Value error, ")
    if item["type"] == "extra_forbidden":
        text = "unknown; the fields are tools, risks, actions, builtinRisks, answerTimeoutMs, answerers"
    return f"{name}: {text}" if name else text
