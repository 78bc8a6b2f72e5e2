"""The file of an evaluation (docs/reference/eval-yaml.md), and the other model or prompt that a variant tries."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jsonschema_rs
import msgspec

from headrace.regular_files import read_regular_file
from headrace.yaml_loading import load_yaml

PROMPT_BYTES_MAX = 1024 * 1024


def read_prompt(path: Path) -> str:
    """Return a file's text without white space at its ends. Raises OSError, UnicodeDecodeError."""
    return read_regular_file(path, PROMPT_BYTES_MAX).decode().strip()


def make_trial(model: str | None, prompt: str | None) -> dict[str, str]:
    """Return `trial` of a query, empty where nothing is tried; `model` is a name, or PROVIDER/NAME."""
    trial: dict[str, str] = {}
    if model:
        provider, slash, name = model.partition("/")
        trial = {"providerKey": provider, "model": name} if slash else {"model": model}
    return trial if prompt is None else trial | {"systemPrompt": prompt}


FILE_BYTES_MAX = 16 * 1024 * 1024

RUNS_MAX = 100_000
"""Of a whole evaluation: cases, variants and repetitions multiplied."""


class SuiteError(ValueError):
    """The file is wrong; the message names the field and the rule."""


class _Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", omit_defaults=True):
    pass


class ToolCall(_Part, frozen=True):
    name: str
    arguments: dict[str, Any] = {}
    """Arguments that a call of the tool must have; it may have others too."""


class Judge(_Part, frozen=True):
    rubric: str
    score_min: int = 4
    """Of 1 to 5."""


class Check(_Part, frozen=True):
    """One of these."""

    contains: str | None = None
    regex: str | None = None
    json_schema: dict[str, Any] | None = None
    tool_called: ToolCall | None = None
    no_tool_called: bool | list[str] | None = None
    """True: no tool at all; or none of these."""
    steps_max: int | None = None
    """Model calls."""
    cost_usd_max: float | None = None
    first_delta_ms_max: float | None = None
    latency_ms_max: float | None = None
    python: str | None = None
    """`file.py:function`, from the suite's folder; it is given the result as a dict, and returns true, or why not."""
    judge: Judge | None = None

    @property
    def kind(self) -> str:
        return next(name for name in self.__struct_fields__ if getattr(self, name) is not None)


class Variant(_Part, frozen=True):
    """What is compared: an agent, with what it is asked in another way."""

    name: str
    agent_key: str
    params: dict[str, Any] = {}
    deep_think: int | None = None
    agent_version: int | None = None
    """A version of the agent that has had runs; absent: the one in force. It needs the scope `operate`."""
    model: str | None = None
    """Another model, as PROVIDER/NAME or a name of the agent's provider. It needs the scope `publish`."""
    prompt: str | None = None
    """A file with another system prompt, from the suite's folder; once the suite is read, the prompt. Likewise."""


class Case(_Part, frozen=True):
    name: str
    message: str
    history: list[dict[str, Any]] = []
    """The conversation before, as `history` of a query."""
    files: list[str] = []
    """Files to upload, from the suite's folder."""
    checks: list[Check] = []


class JudgeModel(_Part, frozen=True):
    agent_key: str
    """The agent that judges; its own prompt stands before the rubric."""


class Thresholds(_Part, frozen=True):
    pass_rate: float = 1.0
    """The least share of runs whose checks all hold, of every variant."""
    cost_usd_max: float | None = None
    """The most that all runs of a variant may cost together."""


class Suite(_Part, frozen=True):
    agents: list[str | Variant]
    cases: list[Case]
    repetitions: int = 1
    concurrency: int = 4
    budget_usd: float | None = None
    """No run begins once the runs have cost that much."""
    timeout_ms: int = 600_000
    checks: list[Check] = []
    """Of every case."""
    judge: JudgeModel | None = None
    thresholds: Thresholds = Thresholds()

    @property
    def variants(self) -> list[Variant]:
        return [Variant(one, one) if isinstance(one, str) else one for one in self.agents]

    def list_checks(self, case: Case) -> Sequence[Check]:
        return [*self.checks, *case.checks]


def read_suite(path: Path) -> Suite:
    """Raises SuiteError, OSError."""
    try:
        given = load_yaml(read_regular_file(path, FILE_BYTES_MAX))
        suite = _read_prompts(msgspec.convert(given, Suite), path.parent)
    except (ValueError, _NoPrompt) as error:
        raise SuiteError(f"{path}: {error}") from None
    for problem in _find_problems(suite):
        raise SuiteError(f"{path}: {problem}")
    return suite


class _NoPrompt(Exception):
    pass


def _read_prompts(suite: Suite, folder: Path) -> Suite:
    """Return the suite with the prompts in the place of their files: results hang on what they say."""
    agents: list[str | Variant] = []
    for one in suite.agents:
        if isinstance(one, Variant) and one.prompt is not None:
            try:
                agents.append(msgspec.structs.replace(one, prompt=read_prompt(folder / one.prompt)))
            except (OSError, UnicodeDecodeError) as error:
                raise _NoPrompt(f"agents {one.name!r}: prompt: {error}") from error
        else:
            agents.append(one)
    return msgspec.structs.replace(suite, agents=agents)


def _find_problems(suite: Suite) -> list[str]:
    problems: list[str] = []
    for name, values in (("agents", suite.variants), ("cases", suite.cases)):
        names = [value.name for value in values]
        if not names:
            problems.append(f"{name}: at least one")
        problems += [
            f"{name}: {twice!r} stands there twice" for twice in {one for one in names if names.count(one) > 1}
        ]
    if suite.repetitions < 1 or not 1 <= suite.concurrency <= 64 or suite.timeout_ms < 1:
        problems.append("repetitions, concurrency, timeoutMs: 1 or more; concurrency 64 at most")
    if len(suite.cases) * len(suite.agents) * suite.repetitions > RUNS_MAX:
        problems.append(f"cases × agents × repetitions: {RUNS_MAX} at most")
    if not 0 <= suite.thresholds.pass_rate <= 1:
        problems.append("thresholds.passRate: 0 to 1")
    places = [("checks", suite.checks), *((f"cases {case.name!r}", case.checks) for case in suite.cases)]
    for place, checks in places:
        problems += [f"{place}: {problem}" for check in checks for problem in _find_check_problems(check, suite)]
    return problems


def _find_check_problems(check: Check, suite: Suite) -> list[str]:
    given = [name for name in check.__struct_fields__ if getattr(check, name) is not None]
    if len(given) != 1:
        return ["a check is one of " + ", ".join(check.__struct_encode_fields__)]
    try:
        if check.regex is not None:
            re.compile(check.regex)
        if check.json_schema is not None:
            jsonschema_rs.validator_for(check.json_schema)
    except (re.error, jsonschema_rs.ValidationError, ValueError) as error:
        return [f"{check.kind}: {error}"]
    if check.judge is not None and suite.judge is None:
        return ["judge: the suite names no judge (judge.agentKey)"]
    if check.python is not None and ":" not in check.python:
        return ["python: expected file.py:function"]
    return []


def describe_check(check: Check) -> str:
    """Say what a check wants, in a line."""
    wanted = msgspec.to_builtins(getattr(check, check.kind))
    text = wanted if isinstance(wanted, str) else json.dumps(wanted, ensure_ascii=False)
    return f"{check.kind.replace('_', ' ')}: {text if len(text) <= 120 else text[:120] + '…'}"
