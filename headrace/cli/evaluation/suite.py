"""The evaluation file (docs/reference/eval-yaml.md), and the alternative model or prompt of a variant."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jsonschema_rs
import msgspec

from headrace.regular_files import read_regular_file, read_regular_text
from headrace.yaml_loading import load_yaml

PROMPT_BYTES_MAX = 1024 * 1024


def read_prompt(path: Path) -> str:
    """Return a file's text, stripped; raise OSError or UnicodeDecodeError."""
    return read_regular_text(path, PROMPT_BYTES_MAX).strip()


def make_trial(model: str | None, prompt: str | None) -> dict[str, str]:
    """Return a query's `trial`, empty without an alternative; `model` is a model name or PROVIDER/NAME."""
    trial: dict[str, str] = {}
    if model:
        provider, slash, name = model.partition("/")
        trial = {"providerKey": provider, "model": name} if slash else {"model": model}
    return trial if prompt is None else trial | {"systemPrompt": prompt}


FILE_BYTES_MAX = 16 * 1024 * 1024

RUNS_MAX = 100_000
"""Maximum number of runs: cases times variants times repetitions."""


class SuiteError(ValueError):
    """The suite file is invalid; the message names the field and the rule."""


class _Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", omit_defaults=True):
    pass


class ToolCall(_Part, frozen=True):
    name: str
    arguments: dict[str, Any] = {}
    """Required arguments of the call, which may have others too."""


class Judge(_Part, frozen=True):
    rubric: str
    score_min: int = 4
    """Minimum score, from 1 to 5."""


class Check(_Part, frozen=True):
    """A check; exactly one field is set."""

    contains: str | None = None
    regex: str | None = None
    json_schema: dict[str, Any] | None = None
    tool_called: ToolCall | None = None
    no_tool_called: bool | list[str] | None = None
    """True forbids all tools, a list only the tools in it."""
    steps_max: int | None = None
    """Maximum number of model calls."""
    cost_usd_max: float | None = None
    first_delta_ms_max: float | None = None
    latency_ms_max: float | None = None
    python: str | None = None
    """`file.py:function` in the suite's folder. It gets the result as a dict, and returns true or the reason
    for failing.
    """
    judge: Judge | None = None

    @property
    def kind(self) -> str:
        return next(name for name in self.__struct_fields__ if getattr(self, name) is not None)


class Variant(_Part, frozen=True):
    """One of the alternatives to compare: an agent, with its options."""

    name: str
    agent_key: str
    params: dict[str, Any] = {}
    deep_think: int | None = None
    agent_version: int | None = None
    """Agent version that has had runs; absent: the one in force. It needs the scope `operate`."""
    model: str | None = None
    """Alternative model, as PROVIDER/NAME or a name of the agent's provider. It needs the scope `publish`."""
    prompt: str | None = None
    """File with an alternative system prompt, in the suite's folder; after reading, the prompt itself. It needs
    the scope `publish`.
    """


class Case(_Part, frozen=True):
    name: str
    message: str
    history: list[dict[str, Any]] = []
    """The earlier conversation, in the form of a query's `history`."""
    files: list[str] = []
    """Files to upload, from the suite's folder."""
    checks: list[Check] = []


class JudgeModel(_Part, frozen=True):
    agent_key: str
    """Key of the judging agent; its own prompt precedes the rubric."""


class Thresholds(_Part, frozen=True):
    pass_rate: float = 1.0
    """Minimum share of runs of each variant that must pass all checks."""
    cost_usd_max: float | None = None
    """Maximum total cost of a variant's runs."""


class Suite(_Part, frozen=True):
    agents: list[str | Variant]
    cases: list[Case]
    repetitions: int = 1
    concurrency: int = 4
    budget_usd: float | None = None
    """Cost at which no further run starts."""
    timeout_ms: int = 600_000
    checks: list[Check] = []
    """Checks of every case."""
    judge: JudgeModel | None = None
    thresholds: Thresholds = Thresholds()

    @property
    def variants(self) -> list[Variant]:
        return [Variant(one, one) if isinstance(one, str) else one for one in self.agents]

    def list_checks(self, case: Case) -> Sequence[Check]:
        return [*self.checks, *case.checks]


def read_suite(path: Path) -> Suite:
    """Read and validate a suite file; raise SuiteError or OSError."""
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
    """Return the suite with each prompt file replaced by its content, which run keys must depend on."""
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
        problems += [f"{name}: {twice!r} is there twice" for twice in {one for one in names if names.count(one) > 1}]
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
    """Return a one-line description of a check."""
    wanted = msgspec.to_builtins(getattr(check, check.kind))
    text = wanted if isinstance(wanted, str) else json.dumps(wanted, ensure_ascii=False)
    return f"{check.kind.replace('_', ' ')}: {text if len(text) <= 120 else text[:120] + '…'}"
