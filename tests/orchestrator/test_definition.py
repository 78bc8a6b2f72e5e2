"""Agent files: what is taken, what is refused and how that is said, and reloading."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import NotFound
from services.orchestrator import prompts, triple_quotes
from services.orchestrator.budget import Spending
from services.orchestrator.definition import DefinitionError, parse
from services.orchestrator.registry import Registry

AGENT: dict[str, Any] = {
    "mode": "REACT",
    "modelConfig": {"providerKey": "simulator", "model": "sim-1", "reasoning": {"enabled": True, "effort": "LOW"}},
    "toolConfig": {"backends": ["city_datetime"]},
    "react": {"systemPrompt": "Be brief."},
}


def parsed(**changes: Any) -> Any:
    return parse(json.dumps(AGENT | changes).encode(), "helper")


def test_the_file_name_gives_the_key_and_defaults_hold() -> None:
    agent = parsed()
    assert agent.key == "helper"
    spending = Spending(agent)
    assert (spending.model_calls_max, spending.tool_calls_max, spending.steps_max, spending.timeout_s) == (
        15,
        20,
        6,
        120,
    )


def test_a_stage_overrides_the_model_field_by_field() -> None:
    stage = {"systemPrompt": "x", "modelConfig": {"model": "sim-2", "reasoning": {"effort": "HIGH"}, "top_p": 0.5}}
    model = parsed(react=stage).model
    assert (model.provider_key, model.model, model.top_p) == ("simulator", "sim-2", 0.5)
    assert model.reasoning is not None
    assert (model.reasoning.enabled, model.reasoning.effort) == (True, "HIGH")


def test_an_explicit_null_empties_a_stages_tools() -> None:
    assert parsed().tools == ("city_datetime",)
    assert parsed(react={"systemPrompt": "x", "toolConfig": None}).tools == ()


def test_the_other_forms_of_budget_and_tool_choice_are_taken() -> None:
    agent = parsed(
        budget={"runTimeoutMs": 5000, "model": {"maxCalls": 2, "timeoutMs": 100, "retryCount": 3}},
        toolChoice="REQUIRED",
    )
    assert (agent.limits.timeout_ms, agent.limits.max_model_calls, agent.limits.model_timeout_ms) == (5000, 2, 100)
    assert agent.policy == "REQUIRE"


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"mode": "LOOP"}, "mode: Input should be 'ONESHOT' or 'REACT'"),
        ({"react": None}, "react: is required for mode REACT"),
        ({"modelConfig": {"model": "x"}}, "modelConfig: providerKey and model must be set"),
        ({"sytemPrompt": "x"}, "sytemPrompt: unknown, or not supported by this version"),
        ({"react": {"systemPrompt": "Hi {{nobody}}"}}, "react.systemPrompt: {{nobody}} is no placeholder"),
        ({"budget": {"maxSteps": 0}}, "budget.maxSteps: Input should be greater than 0"),
        ({"key": "auto"}, "key: 'auto' is reserved"),
        ({"key": "../x"}, "key: String should match pattern"),
    ],
)
def test_a_bad_field_is_named_with_what_was_expected(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        parsed(**changes)
    assert problem in str(caught.value)


def test_line_numbers_of_a_syntax_error_are_those_of_the_file() -> None:
    source = b'{\n  "systemPrompt": """\n  one\n  two\n  """,\n  "mode" "REACT"\n}'
    with pytest.raises(DefinitionError, match=r"line 6, column \d+: not valid JSON"):
        parse(source, "x")


def test_a_prompt_over_several_lines_is_taken_as_it_is() -> None:
    source = '{"SystemPrompt" : """\nSay "hi" \\ there\n  {{date}}\n""", "other": "a \\" \\"\\"\\" b"}'
    assert json.loads(triple_quotes.to_json(source)) == {
        "SystemPrompt": 'Say "hi" \\ there\n  {{date}}',
        "other": 'a " """ b',
    }


@given(st.text().filter(lambda text: '"""' not in text and not text.endswith('"') and text == text.strip()))
def test_any_text_between_triple_quotes_survives_with_its_lines(text: str) -> None:
    source = f'{{"systemPrompt": """\n{text}\n"""\n}}'
    converted = triple_quotes.to_json(source)
    assert json.loads(converted) == {"systemPrompt": text}
    assert converted.count("\n") == source.count("\n") or "\r" in text


def test_placeholders_are_filled_once() -> None:
    filled = prompts.fill("{{query}} on {{ date }} {{taskHistory}}{{tool.field}}", {"query": "{{date}}", "date": "D"})
    assert filled == "{{date}} on D {{tool.field}}"


def write(folder: Path, file: str, **changes: Any) -> None:
    (folder / file).write_text(json.dumps(AGENT | changes))


def test_a_bad_file_keeps_its_last_good_version_and_the_others_go_on(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    write(tmp_path, "a.json", name="first")
    write(tmp_path, "b.json")
    registry.reload()
    (tmp_path / "a.json").write_text("{")
    write(tmp_path, "c.json")
    registry.reload()
    assert [agent.key for agent in registry.all()] == ["a", "b", "c"]
    assert registry.get("a").name == "first"
    (tmp_path / "a.json").unlink()
    registry.reload()
    assert [agent.key for agent in registry.all()] == ["b", "c"]


def test_a_key_defined_twice_stays_with_the_earlier_file(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    write(tmp_path, "a.json", key="x", name="first")
    write(tmp_path, "b.json", key="x", name="second")
    registry.reload()
    assert registry.get("x").name == "first"


def test_the_default_is_the_configured_agent_else_the_first_key(tmp_path: Path) -> None:
    write(tmp_path, "a.json")
    write(tmp_path, "b.json")
    for configured, expected in (("b", "b"), ("", "a")):
        registry = Registry(tmp_path, configured)
        registry.reload()
        assert registry.choose("").key == expected
        assert registry.choose("default").key == expected
    with pytest.raises(NotFound, match="known keys: a, b"):
        registry.choose("nobody")
