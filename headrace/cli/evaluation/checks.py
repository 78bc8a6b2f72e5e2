"""The checks of a result, except the judge's."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import jsonschema_rs
import msgspec

from headrace.cli.evaluation.result import Result, Verdict
from headrace.cli.evaluation.suite import Check, SuiteError, ToolCall, describe_check

Functions = dict[str, Callable[[dict[str, Any]], object]]


def load_functions(checks: list[Check], folder: Path) -> Functions:
    """Import the functions of `python` checks, keyed by their names in the suite; SuiteError if one is missing."""
    names = {check.python for check in checks if check.python is not None}
    modules = {file: _load_module(file, folder) for file in sorted({name.rpartition(":")[0] for name in names})}
    return {name: _find_function(name, modules) for name in names}


def _load_module(file: str, folder: Path) -> ModuleType:
    name = f"headrace_checks.{file}"  # cannot collide with an import
    spec = importlib.util.spec_from_file_location(name, folder / file)
    if spec is None or spec.loader is None or not (folder / file).is_file():
        raise SuiteError(f"python: there is no file {file}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look up their module
    spec.loader.exec_module(module)
    return module


def _find_function(name: str, modules: Mapping[str, ModuleType]) -> Callable[[dict[str, Any]], object]:
    file, _, function = name.rpartition(":")
    if not callable(found := getattr(modules[file], function, None)):
        raise SuiteError(f"python: {file} has no function {function}")
    return found


def check_result(check: Check, result: Result, functions: Functions) -> Verdict:
    problem = _find_problem(check, result, functions)
    return Verdict(describe_check(check), not problem, problem)


def _find_problem(check: Check, result: Result, functions: Functions) -> str:
    """Return why the check fails; empty if it passes."""
    match check.kind:
        case "contains":
            return "" if str(check.contains) in result.answer else "the answer does not have it"
        case "regex":
            return "" if re.search(str(check.regex), result.answer) else "the answer does not match"
        case "json_schema":
            return _check_schema(check.json_schema or {}, result.answer)
        case "tool_called":
            assert check.tool_called is not None, "it is of this kind"
            return _check_called(check.tool_called, result)
        case "no_tool_called":
            wanted = check.no_tool_called
            called = [call.name for call in result.calls if wanted is True or call.name in (wanted or [])]
            return f"called: {', '.join(called)}" if called else ""
        case "python":
            return _call_function(functions[str(check.python)], result)
        case kind:
            return _check_limit(kind, getattr(check, kind), result)


def _check_limit(kind: str, limit: float, result: Result) -> str:
    measured = {
        "steps_max": result.steps,
        "cost_usd_max": result.cost_usd,
        "first_delta_ms_max": result.first_delta_ms,
        "latency_ms_max": result.latency_ms,
    }[kind]
    if measured is None:
        return "it is not known"
    return f"it was {measured:g}" if measured > limit else ""


def _check_schema(schema: dict[str, Any], answer: str) -> str:
    try:
        given = json.loads(answer)
    except (ValueError, RecursionError):
        return "the answer is no JSON"
    error = next(iter(jsonschema_rs.validator_for(schema).iter_errors(given)), None)
    return "" if error is None else error.message


def _check_called(wanted: ToolCall, result: Result) -> str:
    calls = [call for call in result.calls if call.name == wanted.name]
    if not calls:
        return "it was not called; called: " + (", ".join(call.name for call in result.calls) or "nothing")
    for call in calls:
        given = call.arguments if isinstance(call.arguments, dict) else {}
        if all(given.get(name) == value for name, value in wanted.arguments.items()):
            return ""
    return f"it was called with {json.dumps(calls[0].arguments, ensure_ascii=False)}"


def _call_function(function: Callable[[dict[str, Any]], object], result: Result) -> str:
    try:
        verdict = function(msgspec.to_builtins(result))
    except Exception as error:  # the user's own code
        return f"{type(error).__name__}: {error}"
    if isinstance(verdict, str):
        return verdict
    return "" if verdict else "the function says no"
