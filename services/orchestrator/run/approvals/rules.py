"""Parses approvals.yaml, read at start and on change; its patterns are RE2's, linear in the text.

A bad file leaves the last good rules in force. The built-in risk patterns only decide whether a person is asked; they
are not a sandbox.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import re2
import structlog
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic.alias_generators import to_camel

from headrace.regular_files import read_regular_file
from headrace.v1 import common_pb2
from headrace.yaml_loading import load_yaml
from services.runtime.auth.answerer_rule import AnswererRule
from services.runtime.files.refused_files import REFUSED_FILES, describe_problems, report_refusal

log = structlog.get_logger()


Risk: TypeAlias = Literal["critical", "high", "medium", "low"]

RISKS: tuple[Risk, ...] = get_args(Risk)
"""Risk levels, gravest first."""

_RM = r"\brm\s+(?:-[\w-]+\s+)*-(?:\w*[rR]\w*|-recursive)\b"

BUILT_IN: dict[Risk, dict[str, str]] = {
    "critical": {
        "deletes a whole file system": _RM + r"[^|;&\n]*\s(?:/|/\*|~/?|\$HOME/?)(?:\s|[;&|]|$)",
        "makes a file system": r"\bmkfs(?:\.\w+)?\b",
        "writes to a disk device": r"(?:\bdd\b[^|;&\n]*\bof=|>\s*)/dev/(?:sd|hd|vd|xvd|nvme|mmcblk|disk)",
        "a fork bomb": r":\s*\(\s*\)\s*\{[^}]*:\s*\|\s*:",
    },
    "high": {
        "deletes folders": _RM,
        "runs as another user": r"(?:^|[\s;&|(`])(?:sudo|doas|su\s+-)\b",
        "pipes into a shell": (
            r"\|\s*(?:sudo\s+)?(?:/\S*/)?(?:ba|z|da|k|fi)?sh\b|\b(?:ba|z|da)?sh\s+(?:-c\s+)?[\"']?[<$]\("
        ),
        "destructive SQL": (
            r"(?i)\b(?:drop\s+(?:table|database|schema|index|view|user)|truncate\s+(?:table\s+)?\w+|delete\s+from"
            r"|alter\s+table\s+\S+\s+drop)\b"
        ),
        "a password": r"(?i)\b\w*(?:password|passwd|pwd|secret)\w*[\"']?\s*[=:]\s*[\"']?[^\s\"']",
        "a private key": r"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----",
        "an access key": (
            r"\b(?:AKIA[0-9A-Z]{16}|gh[pousr]_[A-Za-z0-9]{36}|sk-[A-Za-z0-9_-]{20,}|xox[abprs]-[\w-]{10,})"
        ),
        "an API key": r"(?i)\b\w*(?:api[_-]?key|access[_-]?token|auth[_-]?token)[\"']?\s*[=:]\s*[\"']?[^\s\"']",
    },
    "medium": {
        "a private network address": (
            r"(?:^|[^\d.])(?:10\.\d{1,3}|127\.\d{1,3}|192\.168|169\.254|172\.(?:1[6-9]|2\d|3[01]))\.\d{1,3}(?:\.\d{1,3})?(?:[^\d.]|$)"
            r"|(?i:\blocalhost\b)|\[(?:::1|(?i:f[cd][0-9a-f]{2}|fe80):[0-9a-fA-F:]*)\]"
        ),
        "installs packages": (
            r"\b(?:pip[\d.]*|uv\s+pip|conda|apt|apt-get|dnf|yum|apk|brew|gem|cargo|npm|pnpm)\s+(?:-\S+\s+)*(?:install|add|i)\b"
            r"|\byarn\s+add\b|\bgo\s+install\b"
        ),
    },
    "low": {
        "changes permissions": r"\b(?:chmod|chown)\s",
    },
}


Then: TypeAlias = Literal["allow", "ask", "deny"]
OnExpiry: TypeAlias = Literal["reject", "approve"]

ANSWER_TIMEOUT_MS, SCHEDULED_TIMEOUT_MS = 300_000, 7 * 24 * 60 * 60 * 1000
"""Default times after which an unanswered approval is rejected: in a run that a person began, and in a schedule's run,
which nobody may be watching."""

ACTIONS: dict[Risk, Then] = {"critical": "deny", "high": "ask", "medium": "ask", "low": "allow"}

PATTERN_CHARS_MAX = 2000

_OPTIONS = re2.Options()
_OPTIONS.log_errors = False


class RulesError(Exception):
    """Lists the problems of the file, one per line, with field and rule."""


@dataclass(frozen=True, slots=True)
class Pattern:
    label: str

    search: Any

    def matches(self, text: str, *, whole: bool = False) -> bool:
        return (self.search.fullmatch if whole else self.search.search)(text) is not None


@dataclass(frozen=True, slots=True)
class ToolRule:
    pattern: Pattern | None
    """None applies to every call."""
    then: Then
    argument: str | None
    """None means every argument."""
    answerers: common_pb2.Answerers | None
    """None uses the tool's definition."""
    on_expiry: OnExpiry

    @property
    def label(self) -> str:
        return "every call" if self.pattern is None else self.pattern.label

    @property
    def ground(self) -> str:
        """Name of the rule in grants, unique among the tool's rules that may ask."""
        if self.pattern is None and self.argument is None:
            return self.label
        return f"{self.label} in {'any argument' if self.argument is None else f'argument {self.argument!r}'}"


@dataclass(frozen=True, slots=True)
class Rules:
    tools: dict[str, tuple[ToolRule, ...]] = field(default_factory=dict[str, tuple[ToolRule, ...]])
    """Rules by case-folded tool name."""

    risks: tuple[tuple[Risk, Pattern], ...] = ()

    actions: dict[Risk, Then] = field(default_factory=lambda: dict(ACTIONS))
    answer_timeout_ms: int | None = None
    """None means the default."""
    answerers: common_pb2.Answerers | None = None
    """Answerers of approvals if neither rule nor tool defines them; None: the requester."""

    def choose_timeout_ms(self, *, is_scheduled: bool) -> int:
        """Return how long an approval waits, in a run of a schedule or another."""
        return self.answer_timeout_ms or (SCHEDULED_TIMEOUT_MS if is_scheduled else ANSWER_TIMEOUT_MS)


class _Part(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)


def _compile_pattern(pattern: str, label: str = "") -> Pattern:
    try:
        return Pattern(label or f"matches {pattern!r}", re2.compile(pattern, _OPTIONS))
    except re2.error as error:
        why = error.args[0].decode() if isinstance(error.args[0], bytes) else error
        raise ValueError(f"not a pattern that RE2 takes: {why}") from None


class _ToolRule(_Part):
    pattern: str | None = Field(default=None, max_length=PATTERN_CHARS_MAX)
    """RE2 regular expression for the strings of the call's arguments; at most 2,000 characters. Left out, the rule
    applies to every call, or with `argument` to every call that has it."""

    then: Then
    """`allow` runs a matching call, `ask` asks a person, `deny` refuses it. `allow` must match every string examined
    from beginning to end, `ask` and `deny` a part of any of them."""

    argument: str | None = None
    """Name of the only argument to examine, including nested values. Left out, all arguments."""

    answerers: AnswererRule | None = None
    """Users who may answer when this rule asks. Left out, the tool's definition decides, then `answerers` of this
    file."""

    on_expiry: OnExpiry = "reject"
    """Decision if no one answers in time, with `then: ask`: `approve` runs the call as the model made it, unless a
    person has voted on it."""

    @model_validator(mode="after")
    def _check_expiry(self) -> _ToolRule:
        if self.on_expiry == "approve" and self.then != "ask":
            raise ValueError(f"onExpiry: only a rule with then: ask has it, and this one has {self.then}")
        return self

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, pattern: str | None) -> str | None:
        if pattern is not None:
            _compile_pattern(pattern)
        return pattern


class _File(_Part):
    tools: dict[str, tuple[_ToolRule, ...]] = {}
    """Rules by the tool's name, case-insensitive. The first match decides, before the tool's own `approval` and the
    risks."""

    risks: dict[Risk, tuple[str, ...]] = {}
    """RE2 patterns by risk level, searched in every string of the arguments and in their JSON text, before the level's
    built-in ones."""

    actions: dict[Risk, Then] = {}
    """Action by risk level; by default critical deny, high ask, medium ask, low allow."""

    builtin_risks: bool = True
    """Whether the built-in patterns apply."""

    answer_timeout_ms: int | None = Field(default=None, gt=0)
    """How long an approval waits for a person, in milliseconds, before the call is rejected. The wait does not count
    towards the run's time. Left out, 300,000, and 604,800,000 (seven days) in a run of a schedule."""

    answerers: AnswererRule | None = None
    """Users who may answer an approval, if neither the rule nor the tool's definition defines them. Left out, the
    requester. For forms and questions only the tool's definition decides."""

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
        raise RulesError("\n".join(describe_problems(error, _File))) from None
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
    pattern = None if rule.pattern is None else _compile_pattern(rule.pattern)
    return ToolRule(pattern, rule.then, rule.argument, answerers, rule.on_expiry)


FILE_BYTES_MAX = 256 * 1024
"""Maximum file size, enough for some thousand rules."""


class RulesFile:
    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self.current = Rules()
        self.text = ""
        """The file in force."""

    def reload(self) -> None:
        """Read the file; log problems, and never raise.

        Until a valid file has been read, the built-in risks apply, because its author wants people to be asked.
        """
        refused = 0
        try:
            if self.path is None or not self.path.exists():
                self.current, self.text = Rules(), ""
                return
            source = read_regular_file(self.path, FILE_BYTES_MAX)
            self.current, self.text = parse(source), source.decode()
        except (RulesError, UnicodeDecodeError, OSError) as error:
            refused = 1
            if self.current == Rules():
                self.current = parse(b"")
            report_refusal(
                "approval rules refused", file=str(self.path), problem=str(error), last_good_version_stays=True
            )
        else:
            log.info("approval rules in force", tools=len(self.current.tools), risks=len(self.current.risks))
        finally:
            REFUSED_FILES.labels("approvals").set(refused)
