"""`find_problems` names everything that is wrong with a definition at once, each with its field."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.orchestrator.agents.definition.problems import Problem, find_problems
from services.orchestrator.agents.definition.reading import DefinitionError, parse_agent
from services.orchestrator.agents.grants import find_ungranted, parse_grants
from tests.support.orchestrator.definitions import BASE, GONE, MISTAKES, put

BELOW = {
    "modelConfig.reasoning": "modelConfig.reasoning.effort",
    "memory.recap": "memory.recap.enabled",
    "models": "models.vision.model",
    "publish": "publish.0",
}
"""The field that is named instead, where only a part of the value is wrong."""

WHOLE: dict[str, Any] = {"key": "auto", "modelConfig.model": GONE, "budget.unknownPrice": "MAX_TOKENS"}
"""Mistakes in how fields combine; they are looked for only when each field is right."""


def list_error_fields(definition: Any) -> list[str]:
    _, problems = find_problems(json.dumps(definition).encode())
    assert all(problem.rule for problem in problems)
    return [problem.field for problem in problems if not problem.is_warning]


OFF: dict[str, Any] = {
    "verify": "NONE",
    "skills": [],
    "subagents": [],
    "toolConfig": {"backends": ["look"], "frontends": [], "actions": []},
    "budget": {"maxDepth": 5},
    "memory": {"recap": {"enabled": False, "maxRecursionDepth": 3}},
    "react": {"output": "PLAIN", "verify": "NONE"},
}
"""Settings that switch off what is off by default."""


@pytest.mark.parametrize("changes", [{}, OFF, {"output": "PLAIN"}])
def test_a_correct_definition_has_no_problems(changes: dict[str, Any]) -> None:
    agent, problems = find_problems(json.dumps(BASE | changes).encode())
    assert agent is not None
    assert problems == []


@given(st.sets(st.sampled_from(sorted(MISTAKES)), min_size=1, max_size=12), st.sets(st.sampled_from(sorted(WHOLE))))
def test_find_problems_names_the_field_of_every_mistake_and_no_other(mistakes: set[str], whole: set[str]) -> None:
    definition = copy.deepcopy(BASE)
    for path in sorted(mistakes):
        put(definition, path, MISTAKES[path])
    expected = {BELOW.get(path, path) for path in mistakes}
    if "budget.unknownPrice" in whole:
        put(definition, "budget.maxTokens", GONE)
    for path in sorted(whole):
        put(definition, path, WHOLE[path])
        # A mistake that follows from a field that is wrong itself is not reported next to it.
        field_named = "modelConfig" if path == "modelConfig.model" else path
        if not any(f"{field}.".startswith(f"{field_named}.") for field in expected):
            expected.add(field_named)
    assert set(list_error_fields(definition)) == expected


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=4),
        _nest := lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from([*BASE, "x", "maxSteps", "plan", "execute"]), inner, max_size=5)
        ),
        max_leaves=30,
    )
)
def test_any_json_gives_an_agent_or_a_problem(definition: Any) -> None:
    agent, problems = find_problems(json.dumps(definition).encode(), "a")
    assert (agent is None) == any(not problem.is_warning for problem in problems)
    assert all(problem.rule for problem in problems)


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        (b"[]", Problem("", "expected a JSON object")),
        (b"{", Problem("", "line 1, column 2: not valid JSON: EOF while parsing an object at line 1 column 1")),
        (
            b'{"key": "a", "toolChoice": "NEVER", "mode": "REACT"}',
            Problem("toolChoice", "Input should be 'DISALLOW', 'ALLOW' or 'REQUIRE'"),
        ),
    ],
)
def test_text_that_is_not_a_definition_is_a_problem(source: bytes, problem: Problem) -> None:
    agent, problems = find_problems(source)
    assert agent is None
    assert problem.field in [found.field for found in problems]
    if problem.field:
        assert problem in problems


def test_a_setting_without_effect_is_a_warning() -> None:
    agent, problems = find_problems(json.dumps(BASE | {"budget": {"model": {"retryCount": 3}}}).encode())
    assert agent is not None
    assert problems == [Problem("budget.model.retryCount", "has no effect", is_warning=True)]


REMOTE: dict[str, Any] = {"key": "far", "mode": "REMOTE", "remote": {"card": "https://far.example/card"}}

REMOTE_MISTAKES: dict[str, Any] = {
    "remote.card": "file:///etc/passwd",
    "remote.token": "s3cret",
    "remote.headers.Authorization": "Bearer s3cret",
    "remote.headers.Host": "other",
    "remote.hosts": "x",
    "remote.effect": "twice",
    "remote.requestTimeoutMs": 0,
    "remote.maxAnswerBytes": 1 << 30,
    "remote.price": {"inputPerMTok": -1},
    "remote.x": 1,
    "toolConfig": {"backends": ["look"]},
    "skills": ["s"],
    "subagents": ["b"],
    "verify": "SECOND_PASS_FIX",
    "output": "REASONING_SUMMARY",
    "chatTitle": "model",
    "memory.extract": "after_run",
}


def change_remote(path: str, value: Any) -> bytes:
    """Return the remote agent with another value in a field, which may be missing."""
    changed = copy.deepcopy(REMOTE)
    *parents, last = path.split(".")
    section = changed
    for parent in parents:
        section = section.setdefault(parent, {})
    section[last] = value
    return json.dumps(changed).encode()


@pytest.mark.parametrize(("field", "value"), REMOTE_MISTAKES.items())
def test_a_field_that_a_remote_agent_cannot_have_is_named(field: str, value: Any) -> None:
    assert find_problems(json.dumps(REMOTE).encode())[1] == []
    agent, problems = find_problems(change_remote(field, value))
    assert agent is None
    [problem] = problems
    # A header is named by its rule: pydantic has no place for a key of a mapping.
    assert f"{field}.".startswith(f"{problem.field}.") or problem.field.startswith(f"{field}."), problem


def test_a_remote_agent_needs_its_section() -> None:
    problems = find_problems(b'{"key": "far", "mode": "REMOTE"}')[1]
    assert [(problem.field, problem.rule) for problem in problems] == [("remote", "is required for mode REMOTE")]


def test_a_tenants_remote_agent_names_granted_hosts_and_no_secrets() -> None:
    def list_fields(remote: dict[str, Any], *hosts: str) -> list[str]:
        given = {"tenants": ["*"], "remotes": hosts}
        grants = parse_grants(json.dumps({"grants": [given]}).encode()).select("acme")
        agent, _ = find_problems(change_remote("remote", remote))
        assert agent is not None
        return [problem.field for problem in find_ungranted(agent, grants, (), ())]

    card = {"card": "https://far.example/card"}
    assert list_fields(card) == ["remote.card"]
    assert list_fields(card, "far.example") == []
    assert list_fields(card, "far.example:443") == []
    assert list_fields(card, "far.example:444") == ["remote.card"]
    assert list_fields(card | {"hosts": ["other.example"]}, "far.*") == ["remote.hosts.0"]
    secrets = {"token": "env:AWS_SECRET_ACCESS_KEY", "headers": {"X-Key": "file:/etc/passwd", "X-Team": "blue"}}
    assert list_fields(card | secrets, "*") == ["remote.headers.X-Key", "remote.token"]


@pytest.mark.parametrize("depth", [80, 900])
def test_a_definition_that_is_nested_too_deeply_has_one_problem(depth: int) -> None:
    deep = b'{"a":' * depth + b"1" + b"}" * depth
    source = b'{"key":"deep","mode":"CUSTOM","custom":{"mode":"own","params":' + deep + b"}}"
    agent, problems = find_problems(source)
    assert agent is None
    assert [(problem.field, problem.rule) for problem in problems] == [("", "nested deeper than 64 levels")]
    with pytest.raises(DefinitionError, match="nested deeper"):
        parse_agent(source, "deep")
