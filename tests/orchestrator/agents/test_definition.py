"""Agent files: which are accepted, which are refused with which message, and how they are reloaded."""

import contextlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from headrace.errors import InvalidRequest, NotFound, Overloaded
from headrace.v1 import memory_pb2
from services.orchestrator.agents import prompts
from services.orchestrator.agents.definition import DefinitionError, parse_agent, reading
from services.orchestrator.agents.registry import Registry
from services.orchestrator.money.spending import Spending
from services.orchestrator.turn.compacting.compaction import make_window_settings

AGENT: dict[str, Any] = {
    "mode": "REACT",
    "modelConfig": {"providerKey": "simulator", "model": "sim-1", "reasoning": {"enabled": True, "effort": "LOW"}},
    "toolConfig": {"backends": ["city_datetime"]},
    "react": {"systemPrompt": "Be brief."},
}


PLAN: dict[str, Any] = {
    "plan": {"systemPrompt": "plan", "modelConfig": {"model": "sim-2"}},
    "execute": {"systemPrompt": "work on {{task_id}}"},
}


def parse_react_agent(**changes: Any) -> Any:
    return parse_agent(json.dumps(AGENT | changes).encode(), "helper")


def make_plan_fields(**changes: Any) -> dict[str, Any]:
    """Return the fields of a PLAN_EXECUTE agent, with these changes in its planExecute section."""
    return {"mode": "PLAN_EXECUTE", "planExecute": changes.pop("planExecute", PLAN | changes)}


def parse_plan_agent(**changes: Any) -> Any:
    return parse_react_agent(**make_plan_fields(**changes))


def test_the_file_name_is_the_key_and_defaults_apply() -> None:
    agent = parse_react_agent()
    assert agent.key == "helper"
    spending = Spending(agent)
    assert (spending.model_calls_max, spending.tool_calls_max, spending.clock.timeout_s) == (15, 20, 120)
    assert agent.primary.steps_max == 6


def test_a_stage_overrides_the_model_field_by_field() -> None:
    stage = {"systemPrompt": "x", "modelConfig": {"model": "sim-2", "reasoning": {"effort": "HIGH"}, "top_p": 0.5}}
    model = parse_react_agent(react=stage).primary.model
    assert (model.provider_key, model.model, model.top_p) == ("simulator", "sim-2", 0.5)
    assert model.reasoning is not None
    assert (model.reasoning.enabled, model.reasoning.effort) == (True, "HIGH")


def test_an_explicit_null_empties_a_stages_tools() -> None:
    assert parse_react_agent().tools == ("city_datetime",)
    assert parse_react_agent(react={"systemPrompt": "x", "toolConfig": None}).tools == ()


def test_the_memory_section_becomes_window_settings() -> None:
    given = {
        "maxRuns": 5,
        "maxMessageHistory": 10,
        "older": "drop",
        "threshold": 0.5,
        "keptShare": 0.3,
        "summary": {"providerKey": "other", "model": "small", "instructions": "Keep each figure."},
        "clearResults": 0,
        "facts": "recall",
        "factsTokens": 100,
        "extract": "after_run",
    }
    memory = parse_react_agent(memory=given).memory
    assert memory.model_dump(by_alias=True, exclude={"recap"}) == given
    assert make_window_settings(memory) == memory_pb2.WindowSettings(
        runs_max=5, messages_max=10, older="drop", due_ratio=0.5, kept_ratio=0.3, results_kept=0
    )


def test_alternative_names_of_budget_and_tool_choice_are_accepted() -> None:
    agent = parse_react_agent(
        budget={"runTimeoutMs": 5000, "model": {"maxCalls": 2, "timeoutMs": 100, "retryCount": 3}},
        toolChoice="REQUIRED",
    )
    assert (agent.limits.timeout_ms, agent.limits.max_model_calls, agent.limits.model_timeout_ms) == (5000, 2, 100)
    assert agent.primary.policy == "REQUIRE"


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"mode": "CUSTOM"}, "custom: is required for mode CUSTOM"),
        ({"mode": "CUSTOM", "custom": {"mode": "a/b"}}, "custom.mode: String should match pattern"),
        (
            {"mode": "CUSTOM", "custom": {"mode": "a", "stages": {"b": {"systemPrompt": "{{no}}"}}}},
            "custom.stages.b.systemPrompt: {{no}} is no placeholder",
        ),
        ({"mode": "LOOP"}, "mode: Input should be 'ONESHOT', 'REACT', 'PLAN_EXECUTE', 'CUSTOM' or 'REMOTE'"),
        ({"react": None}, "react: is required for mode REACT"),
        ({"modelConfig": {"model": "x"}}, "modelConfig: providerKey and model must be set"),
        ({"sytemPrompt": "x"}, "sytemPrompt: unknown, or not supported by this version"),
        ({"toolConfig": {"backend": []}}, "version; did you mean 'backends'?"),
        ({"react": {"systemPromt": "x"}}, "version; did you mean 'systemPrompt'?"),
        ({"react": {"systemPrompt": "Hi {{nobody}}"}}, "react.systemPrompt: {{nobody}} is no placeholder"),
        ({"react": {"systemPrompt": "Book {{find.day+3}}"}}, "react.systemPrompt: {{find.day+3}} is no template"),
        ({"react": {"systemPrompt": "{{ find.day +3d }}"}}, "react.systemPrompt: {{ find.day +3d }} is no template"),
        ({"react": {"systemPrompt": "{{task-list}}"}}, "react.systemPrompt: {{task-list}} is no placeholder"),
        ({"budget": {"model": 5}}, "budget: model: must be an object"),
        ({"memory": {"maxRuns": 0}}, "memory.maxRuns: Input should be greater than 0"),
        ({"memory": {"maxMessageHistory": 9}}, "memory.maxMessageHistory: Input should be greater than or equal to 10"),
        ({"memory": {"older": "forget"}}, "memory.older: Input should be 'summary' or 'drop'"),
        ({"memory": {"threshold": 1.5}}, "memory.threshold: Input should be less than or equal to 1"),
        ({"budget": {"maxSteps": 0}}, "budget.maxSteps: Input should be greater than 0"),
        ({"key": "auto"}, "key: 'auto' is reserved"),
        ({"key": "../x"}, "key: String should match pattern"),
        (make_plan_fields(planExecute=None), "planExecute: is required for mode PLAN_EXECUTE"),
        (make_plan_fields(planExecute={"plan": {}}), "planExecute.execute: Field required"),
        (make_plan_fields(strategy="RANDOM"), "planExecute.strategy: Input should be 'SEQUENTIAL'"),
        (make_plan_fields(maxParallel=0), "planExecute.maxParallel: Input should be greater than 0"),
        (make_plan_fields() | {"modelConfig": None}, "must be set, here or in planExecute.plan.modelConfig"),
        (make_plan_fields(summary={"systemPrompt": "{{x}}"}), "planExecute.summary.systemPrompt: {{x}} is"),
    ],
)
def test_an_error_names_the_bad_field_and_what_is_expected(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        parse_react_agent(**changes)
    assert problem in str(caught.value)


ODD: list[Any] = [None, True, 5, -0.5, "", "x", [], ["x"], [[]], {}, {"x": 1}, {"model": 5, "tool": [1]}]
FIELDS = [
    *("key", "name", "tags", "mode", "modelConfig", "toolConfig", "toolPolicy", "toolChoice", "budget", "memory"),
    *("plain", "react", "planExecute", "output", "verify", "skills", "subagents"),
]


@pytest.mark.parametrize("field", FIELDS)
def test_any_value_of_a_field_raises_at_most_a_definition_error(field: str) -> None:
    for value in ODD:
        for changes in (
            {field: value},
            {"react": {field: value}},
            {"budget": {"model": value, "tool": {field: value}}},
        ):
            with contextlib.suppress(DefinitionError):
                parse_react_agent(**changes)


def test_a_stage_overrides_tools_and_budget_field_by_field() -> None:
    agent = parse_react_agent(
        budget={"maxCostUsd": 0.5, "timeoutMs": 5000}, react={"toolConfig": {}, "budget": {"timeoutMs": 100}}
    )
    assert agent.tools == ("city_datetime",)
    assert (agent.limits.max_cost_usd, agent.limits.timeout_ms) == (0.5, 100)


def test_each_stage_of_a_plan_has_its_settings() -> None:
    agent = parse_plan_agent(maxSteps=3, execute={"systemPrompt": "work", "toolConfig": None})
    plan, execute, summary = agent.stages
    assert (plan.model.model, execute.model.model, summary.model.model) == ("sim-2", "sim-1", "sim-1")
    assert (plan.system_prompt, execute.system_prompt, summary.system_prompt) == ("plan", "work", "work")
    assert (execute.tools, execute.may_use_tools, execute.steps_max) == ((), False, 3)
    assert (agent.primary, agent.working) == (plan, execute)
    section = agent.plan_execute
    assert (section.strategy, section.max_rounds, section.max_parallel) == ("SEQUENTIAL", 10, 8)
    spending = Spending(agent)
    assert (spending.model_calls_max, spending.tool_calls_max, spending.clock.timeout_s) == (30, 50, 300)
    assert parse_plan_agent().working.steps_max == 15
    assert parse_react_agent(mode="PLAN_EXECUTE", planExecute=PLAN, budget={"maxSteps": 4}).working.steps_max == 4


def test_a_stage_sets_its_own_output_verify_and_model() -> None:
    agent = parse_react_agent(
        verify="SECOND_PASS_FIX",
        output="REASONING_SUMMARY",
        planExecute=PLAN | {"summary": {"output": "PLAIN"}},
        react={"verify": "NONE"},
        models={"vision": {"model": "eyes"}, "code": {}},
    )
    assert (agent.primary.verify, agent.primary.output) == ("NONE", "REASONING_SUMMARY")
    settings = [agent.stage_settings(stage) for stage in ("plan", "execute", "summary")]
    assert [stage_setting.verify for stage_setting in settings] == ["NONE", "NONE", "SECOND_PASS_FIX"], (
        "only answers are checked"
    )
    assert [stage_setting.output for stage_setting in settings] == ["REASONING_SUMMARY", "REASONING_SUMMARY", "PLAIN"]
    seeing = agent.with_model("vision")
    assert seeing is not None
    assert {seeing.stage_settings(stage).model.model for stage in ("react", "plan", "execute", "summary")} == {"eyes"}
    assert [agent.with_model(name) for name in ("code", "", "model_fields")] == [None, None, None]


def test_budgets_of_a_custom_modes_stages_limit_the_agent() -> None:
    stages = {"draft": {"budget": {"maxModelCalls": 3}}, "check": {"budget": {"maxToolCalls": 4}}}
    custom = {"mode": "own", "budget": {"maxModelCalls": 9, "timeoutMs": 100}, "stages": stages}
    limits = parse_react_agent(mode="CUSTOM", custom=custom).limits
    assert (limits.max_model_calls, limits.max_tool_calls, limits.timeout_ms) == (3, 4, 100)
    assert parse_react_agent(custom=custom).limits.max_model_calls != 3


def test_tool_policy_require_needs_a_stage_with_tools() -> None:
    with pytest.raises(DefinitionError, match=r"react\.toolConfig: must not be null where toolPolicy is REQUIRE"):
        parse_react_agent(toolPolicy="REQUIRE", react={"toolConfig": None})
    assert (
        parse_react_agent(toolPolicy="REQUIRE", react={"toolConfig": None, "toolPolicy": "ALLOW"}).primary.tools == ()
    )


def test_retry_counts_are_accepted_with_a_warning() -> None:
    nested = {"runTimeoutMs": 1000, "model": {"maxCalls": 2, "retryCount": 3}, "tool": {"retryCount": 1}}
    with capture_logs() as logs:
        agent = parse_react_agent(budget=nested)
    assert agent.limits.max_model_calls == 2
    assert [entry["field"] for entry in logs] == ["budget.model.retryCount", "budget.tool.retryCount"]


def test_deep_think_needs_both_sections() -> None:
    agent = parse_react_agent(planExecute=PLAN)
    assert [agent.with_deep_think(value).mode for value in (0, 1, -1)] == ["REACT", "PLAN_EXECUTE", "PLAN_EXECUTE"]
    for incomplete_agent in (parse_react_agent(), parse_react_agent(mode="PLAN_EXECUTE", react=None, planExecute=PLAN)):
        with pytest.raises(InvalidRequest):
            incomplete_agent.with_deep_think(1)


def test_a_file_may_have_a_byte_order_mark_and_windows_line_ends() -> None:
    source = json.dumps(AGENT | {"react": {}}, indent=1).replace(
        '"react": {}', '"react": {"systemPrompt": """\nHi\n"""}'
    )
    agent = parse_agent(b"\xef\xbb\xbf" + source.replace("\n", "\r\n").encode(), "helper")
    assert agent.primary.system_prompt == "Hi"


def test_a_syntax_error_names_the_line_of_the_file() -> None:
    source = b'{\n  "systemPrompt": """\n  one\n  two\n  """,\n  "mode" "REACT"\n}'
    with pytest.raises(DefinitionError, match=r"line 6, column \d+: not valid JSON"):
        parse_agent(source, "x")


def test_a_multi_line_prompt_is_read_unchanged() -> None:
    source = '{"SystemPrompt" : """\nSay "hi" \\ there\n  {{date}}\n""", "other": "a \\" \\"\\"\\" b"}'
    assert json.loads(reading.to_json(source)) == {
        "systemPrompt": 'Say "hi" \\ there\n  {{date}}',
        "other": 'a " """ b',
    }


def test_any_text_may_have_several_lines_and_a_line_break_elsewhere_says_so() -> None:
    source = json.dumps(AGENT | {"react": {}}, indent=1)
    agent = parse_agent(source.replace("{}", '{"examples": """\nUser: "a"\nYou: b\n"""}').encode(), "helper")
    assert agent.stages[0].examples == 'User: "a"\nYou: b'
    with pytest.raises(DefinitionError, match=r'line \d+, column \d+: .*between """ and """'):
        parse_agent(source.replace("{}", '{"systemPrompt": "a\nb"}').encode(), "helper")


@pytest.mark.parametrize("name", ["systemPrompt", "systemprompt", "SYSTEMPROMPT", "SystemPrompt"])
@pytest.mark.parametrize("value", ['"Hi"', '"""Hi"""', '"""\nHi\n"""'])
def test_the_name_of_the_prompt_field_ignores_case(name: str, value: str) -> None:
    source = json.dumps(AGENT | {"react": {}}).replace('"react": {}', f'"react": {{"{name}": {value}}}')
    assert parse_agent(source.encode(), "helper").primary.system_prompt == "Hi"


@given(st.text().filter(lambda text: '"""' not in text and not text.endswith('"') and text == text.strip()))
def test_any_text_between_triple_quotes_is_read_unchanged(text: str) -> None:
    source = f'{{"systemPrompt": """\n{text}\n"""\n}}'
    converted = reading.to_json(source)
    assert json.loads(converted) == {"systemPrompt": text}
    assert converted.count("\n") == source.count("\n") or "\r" in text


def test_placeholders_are_filled_once() -> None:
    filled = prompts.fill_placeholders(
        "{{query}} on {{ date }} {{taskHistory}}{{tool.field}}", {"query": "{{date}}", "date": "D"}
    )
    assert filled == "{{date}} on D {{tool.field}}"


def test_a_backslash_makes_a_placeholder_text() -> None:
    """For prompts that show templates or formulas: https://github.com/FlowiseAI/Flowise/issues/968 (2025-05),
    https://github.com/langchain-ai/langchain/issues/32702 (2025-08)."""
    prompt = r"Write Dear \{{name}}, not {{date}}, and $\frac\{{a}}{b}$ \{{ date }}"
    assert parse_react_agent(react={"systemPrompt": prompt}).primary.system_prompt == prompt
    assert prompts.fill_placeholders(prompt, {"date": "D", "name": "N"}) == (
        r"Write Dear {{name}}, not D, and $\frac{{a}}{b}$ {{ date }}"
    )
    assert not prompts.uses_placeholder(r"\{{history_dialogue}}", "history_dialogue")


def write(folder: Path, file: str, **changes: Any) -> None:
    (folder / file).write_text(json.dumps(AGENT | changes))


def test_a_bad_file_keeps_its_last_good_version_while_others_reload(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    write(tmp_path, "a.json", name="first")
    write(tmp_path, "b.json")
    registry.reload()
    (tmp_path / "a.json").write_text("{")
    write(tmp_path, "c.json")
    registry.reload()
    assert [agent.key for agent in registry.all()] == ["a", "b", "c"]
    assert registry.get("a").name == "first"
    (tmp_path / "d.json").write_text('{"mode": "ONCE"}')
    registry.reload()
    (a, d) = registry.list_refused()
    assert (a[0], a[2], d[0], d[2]) == ("a.json", "a", "d.json", "")
    assert d[1].startswith("mode: ")
    for name in ("a.json", "d.json"):
        (tmp_path / name).unlink()
    registry.reload()
    assert registry.list_refused() == []
    assert [agent.key for agent in registry.all()] == ["b", "c"]


def test_a_registry_is_loaded_after_one_valid_file_or_with_an_empty_folder(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    (tmp_path / "a.json").write_text("{")
    registry.reload()
    assert REGISTRY.get_sample_value("headrace_refused_files", {"kind": "agents"}) == 1
    assert not registry.is_loaded
    for choice in ("", "a"):
        with pytest.raises(
            Overloaded, match=r"no agent file has been valid.*: a.json was refused: line 1, column 2: not valid JSON"
        ):
            registry.choose(choice)
    write(tmp_path, "b.json")
    registry.reload()
    assert registry.is_loaded
    (tmp_path / "b.json").unlink()
    registry.reload()
    assert registry.is_loaded
    (tmp_path / "a.json").unlink()
    empty = Registry(tmp_path)
    empty.reload()
    assert REGISTRY.get_sample_value("headrace_refused_files", {"kind": "agents"}) == 0
    assert empty.is_loaded


def test_a_file_that_takes_another_files_key_keeps_its_last_version(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    write(tmp_path, "a.json")
    write(tmp_path, "b.json", name="first")
    registry.reload()
    write(tmp_path, "b.json", key="a", name="second")
    registry.reload()
    assert [(agent.key, agent.name) for agent in registry.all()] == [("a", ""), ("b", "first")]


def test_a_key_defined_twice_stays_with_the_earlier_file(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    write(tmp_path, "a.json", key="x", name="first")
    write(tmp_path, "b.json", key="x", name="second")
    registry.reload()
    assert registry.get("x").name == "first"


def test_the_default_is_the_configured_agent_or_else_the_first_key(tmp_path: Path) -> None:
    write(tmp_path, "a.json")
    write(tmp_path, "b.json")
    for configured, expected in (("b", "b"), ("", "a")):
        registry = Registry(tmp_path, configured)
        registry.reload()
        assert registry.choose("").key == expected
        assert registry.choose("default").key == expected
    with pytest.raises(NotFound, match="known keys: a, b"):
        registry.choose("nobody")


@pytest.mark.parametrize(
    ("key", "text", "reason"),
    [
        ("b", '{"key": "b", "mode": "REACT"', "line 1, column 29: not valid JSON"),
        (
            "b",
            '{"mode": "REACT", "recat": {}}',
            "recat: unknown, or not supported by this version; did you mean 'react'?",
        ),
        ("other", '{"key": "other", "mode": "ONCE"}', "mode: Input should be"),
        ("b", '{"key": "other", "mode": "ONCE"}', "mode: Input should be"),
        ("my agent", json.dumps(AGENT | {"key": "my agent"}), "key: "),
        ("b", json.dumps(AGENT | {"key": "a"}), "key: 'a' is defined in an earlier file already"),
        ("b", json.dumps(AGENT | {"key": 7}), "key: "),
        ("b", "[]", "expected a JSON object"),
    ],
)
def test_choosing_an_agent_whose_file_is_refused_says_why(tmp_path: Path, key: str, text: str, reason: str) -> None:
    registry = Registry(tmp_path)
    write(tmp_path, "a.json")
    (tmp_path / "b.json").write_text(text)
    registry.reload()
    for choose in (registry.get, registry.choose):
        with pytest.raises(
            NotFound, match=re.escape(f"agent {key!r} is not in force: its file b.json was refused: {reason}")
        ):
            choose(key)
    with pytest.raises(NotFound, match="no agent has the key 'c'; known keys: a"):
        registry.get("c")


def test_all_problems_of_a_refused_file_fit_into_one_bounded_line(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    write(tmp_path, "a.json")
    write(tmp_path, "b.json", **{f"field{number}": 1 for number in range(1000)})
    registry.reload()
    with pytest.raises(
        NotFound, match=r"refused: field0: [^\n]+; field1: [^\n]+… \(\d+,\d+ more characters\)$"
    ) as caught:
        registry.get("b")
    assert len(caught.value.message) < 400, "an error cuts the rest"


def test_unknown_price_max_tokens_needs_a_token_budget() -> None:
    with pytest.raises(DefinitionError, match="MAX_TOKENS needs budget"):
        parse_react_agent(budget={"maxCostUsd": 1, "unknownPrice": "MAX_TOKENS"})
    agent = parse_react_agent(budget={"maxTokens": 9, "unknownPrice": "MAX_TOKENS"}, react={"budget": {"timeoutMs": 9}})
    assert agent.limits.unknown_price == "MAX_TOKENS"
