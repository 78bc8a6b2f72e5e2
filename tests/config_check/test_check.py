"""`headrace check` reports each of up to five problems put into the project's examples."""

import json
import os
import random
import shutil
import socket
import subprocess
import sys
from codecs import BOM_UTF8
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from services.config_check.__main__ import check_folder
from services.config_check.machine import describe_sandbox, examine_machine
from services.tools.sandbox.tiers import Sandbox
from tests.support.command_line import run

EXAMPLES = Path(__file__).parents[2] / "examples"

Break = Callable[[Path], None]


def edit_agent(name: str, value: Any) -> Break:
    """Return a function that writes a new agent file with one invalid field."""

    def write(folder: Path) -> None:
        agent: dict[str, Any] = {
            "mode": "ONESHOT",
            "modelConfig": {"providerKey": "simulator", "model": "sim-1"},
            "plain": {"systemPrompt": "You help."},
        }
        (folder / "agents" / f"broken_{name}.json").write_text(json.dumps(agent | {name: value}))

    return write


def write(name: str, text: str) -> Break:
    def put(folder: Path) -> None:
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)

    return put


def edit_provider(**fields: Any) -> Break:
    def change(folder: Path) -> None:
        path = folder / "providers.json"
        stated = json.loads(path.read_text())
        stated["providers"].append({"key": "broken", "protocol": "openai", "baseUrl": "http://127.0.0.1"} | fields)
        path.write_text(json.dumps(stated))

    return change


def add_rule(tool: str, **fields: Any) -> Break:
    def change(folder: Path) -> None:
        path = folder / "approvals.yaml"
        stated = yaml.safe_load(path.read_text()) if path.exists() else {"tools": {}}
        stated["tools"][tool] = [{"pattern": "", "then": "ask"} | fields]
        path.write_text(yaml.safe_dump(stated))

    return change


BREAKS: dict[str, Break] = {
    "agents/broken_mode.json: mode: ": edit_agent("mode", "GUESS"),
    "agents/broken_colour.json: colour: unknown": edit_agent("colour", "red"),
    "agents/broken_budget.json: budget.maxSteps: ": edit_agent("budget", {"maxSteps": -1}),
    "agents/broken_key.json: key: ": edit_agent("key", "with a space"),
    "agents/broken_modelConfig.json: modelConfig: provider 'nobody'": edit_agent(
        "modelConfig", {"providerKey": "nobody", "model": "m"}
    ),
    "agents/broken_models.json: modelConfig: provider 'openai' has no model 'gpt-0'": edit_agent(
        "models", {"vision": {"providerKey": "openai", "model": "gpt-0"}}
    ),
    "agents/broken_toolConfig.json: toolConfig: there is no tool 'hammer'": edit_agent(
        "toolConfig", {"backends": ["hammer", "@core", "todo_write", "example__anything"]}
    ),
    "agents/broken_skills.json: skills: there is no skill 'juggling'": edit_agent("skills", ["letter", "juggling"]),
    "agents/broken_subagents.json: subagents: no agent has the key 'nobody'": edit_agent(
        "subagents", ["writer", "nobody"]
    ),
    "agents/cut.json: line 1, column ": write("agents/cut.json", '{"mode": '),
    "agents/double.json: key: 'assistant' is defined in an earlier file": write(
        "agents/double.json",
        (EXAMPLES / "agents" / "assistant.json").read_text().replace("{", '{"key": "assistant",', 1),
    ),
    "tools/cut.backend: line 1, column 2: not valid JSON": write("tools/cut.backend", "{"),
    "tools/wrong.action: tools[0].name: ": write("tools/wrong.action", '{"tools": [{"name": "a b"}]}'),
    "tools/bare.backend: command: missing": write("tools/bare.backend", '{"tools": [{"name": "bare"}]}'),
    "tools/blind: its view 'dark' does not exist": write(
        "tools/blind.frontend", '{"tools": [{"name": "blind", "viewport": "dark"}]}'
    ),
    "tools.yaml: optional.fetch.enabled: ": write("tools.yaml", "optional: {fetch: {enabled: perhaps}}"),
    "skills/empty/SKILL.md: ": write("skills/empty/SKILL.md", "no front matter"),
    "mcp.json: mcpServers.lame: either command or url": write(
        "mcp.json", '{"mcpServers": {"lame": {}, "example": {}}}'
    ),
    "tenant-agents.yaml: grants.0.tenants: ": write("tenant-agents.yaml", "grants: [{tenants: []}]"),
    "budgets.yaml: budgets.0.period: ": write("budgets.yaml", "budgets: [{id: a, period: week, usd: 1}]"),
    "approvals.yaml: tools.hammer: there is no such tool": add_rule("hammer"),
}
"""How a line of the report begins, and what is broken for it. None of them hides another's line."""

ALONE: dict[str, Break] = {
    "providers.json: providers.11.models: ": edit_provider(models=[]),
    "providers.json: provider 'broken': fallback 'nobody/m' names": edit_provider(
        models=[{"name": "m"}], fallback=["nobody/m"]
    ),
    "approvals.yaml: tools.hammer.0.pattern: not a pattern": add_rule("hammer", pattern="("),
    "budgets.yaml: agent: no agent has the key 'nobody'": write(
        "budgets.yaml", "budgets: [{id: a, period: day, usd: 1, agent: nobody}]"
    ),
    "retention.yaml: tenants.acme.days: ": write("retention.yaml", "chatDays: never\ntenants: {acme: {days: 3}}"),
    "mcp.json: mcpServers: at most": write(
        "mcp.json", json.dumps({"mcpServers": {str(number): {} for number in range(65)}})
    ),
}
"""The same for files that are refused as a whole, which others would break in another way."""


def copy_examples(folder: Path) -> Path:
    return Path(shutil.copytree(EXAMPLES, folder, ignore=shutil.ignore_patterns("clients")))


def expect_lines(problems: list[str], beginnings: list[str]) -> None:
    found = {beginning: [line for line in problems if line.startswith(beginning)] for beginning in beginnings}
    assert {beginning: len(lines) for beginning, lines in found.items()} == dict.fromkeys(beginnings, 1), problems
    others = [line for line in problems if not line.startswith(tuple(beginnings))]
    # Where mcp.json is replaced, the server of the examples is broken with it.
    assert [line for line in others if not line.startswith("mcp.json: mcpServers.example")] == []


def test_the_examples_have_no_problems() -> None:
    definitions, problems = check_folder(EXAMPLES, None)
    assert problems == []
    assert definitions.is_whole
    assert definitions.agents["assistant.json"].key == "assistant"


@pytest.mark.parametrize("seed", range(100))
def test_each_of_several_problems_is_reported(tmp_path: Path, seed: int) -> None:
    choice = random.Random(seed)
    beginnings = choice.sample([*BREAKS], choice.randint(1, 5))
    folder = copy_examples(tmp_path / "config")
    for beginning in beginnings:
        BREAKS[beginning](folder)
    expect_lines(check_folder(folder, None)[1], beginnings)


@pytest.mark.parametrize("beginning", ALONE)
def test_a_wholly_refused_file_is_named(tmp_path: Path, beginning: str) -> None:
    folder = copy_examples(tmp_path / "config")
    ALONE[beginning](folder)
    expect_lines(check_folder(folder, None)[1], [beginning])


@pytest.mark.parametrize("file", ["agents/writer.json", "providers.json", "mcp.json", "tools/units.backend"])
def test_a_duplicate_name_in_a_json_object_is_refused(tmp_path: Path, file: str) -> None:
    """A JSON parser would keep only the last of them, such as the second of two servers."""
    folder = copy_examples(tmp_path / "config")
    text = (folder / file).read_text()
    first = text.index('"')
    name = text[first : text.index('"', first + 1) + 1]
    (folder / file).write_text(f"{text[:first]}{name}: 0, {text[first:]}")
    problems = [line for line in check_folder(folder, None)[1] if line.startswith(f"{file}: ")]
    assert f"{name[1:-1]!r} is there twice in one object" in problems[0]


@pytest.mark.parametrize("rules", ["{a: [{then: deny}], a: [{then: allow}]}", "{a: [{then: deny, then: allow}]}"])
def test_a_duplicate_key_in_a_yaml_rule_file_is_refused(tmp_path: Path, rules: str) -> None:
    folder = copy_examples(tmp_path / "config")
    (folder / "approvals.yaml").write_text(f"tools: {rules}\n")
    expect_lines(check_folder(folder, None)[1], ["approvals.yaml: not valid YAML: line 1, column"])


def test_a_merged_mapping_may_be_overridden(tmp_path: Path) -> None:
    folder = copy_examples(tmp_path / "config")
    rules = "{write_file: [&a {then: ask, argument: x}, &b {<<: *a, argument: y}, {<<: [*b, *a], then: deny}]}"
    (folder / "approvals.yaml").write_text(f"tools: {rules}\n")
    assert check_folder(folder, None)[1] == []


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"])
def test_files_with_a_byte_order_mark_and_windows_line_ends_are_valid(tmp_path: Path, line_end: bytes) -> None:
    folder = copy_examples(tmp_path / "config")
    (folder / "approvals.yaml").write_text("actions: {high: ask}\n")
    kinds = ("agents/*.json", "*.json", "tools/*.backend", "tools/*.html", "*.yaml", "skills/*/SKILL.md")
    for path in [path for kind in kinds for path in folder.glob(kind)]:
        path.write_bytes(BOM_UTF8 + path.read_bytes().replace(b"\n", line_end))
    assert check_folder(folder, None)[1] == []


@pytest.mark.parametrize("name", [".#writer", "._writer", ".writer"])
def test_hidden_files_of_editors_and_systems_are_ignored(tmp_path: Path, name: str) -> None:
    folder = copy_examples(tmp_path / "config")
    for kind in ("agents/{}.json", "tools/{}.backend", "tools/{}.html", "modes/{}.py"):
        path = folder / kind.format(name)
        path.parent.mkdir(exist_ok=True)
        if name.startswith(".#"):
            path.symlink_to("someone@host.1234:5678")
        else:
            path.write_bytes(b"\0\5\x16\7\0\2")
    assert check_folder(folder, None)[1] == []


def test_names_are_not_looked_up_in_missing_folders(tmp_path: Path) -> None:
    """An orchestrator's pod has only the agents folder."""
    folder = tmp_path / "config"
    shutil.copytree(EXAMPLES / "agents", folder / "agents")
    edit_agent("toolConfig", {"backends": ["hammer"]})(folder)
    assert check_folder(folder, None)[1] == []
    edit_agent("subagents", ["nobody"])(folder)
    assert len(check_folder(folder, None)[1]) == 1


def test_unset_secrets_are_reported_on_request(tmp_path: Path) -> None:
    folder = copy_examples(tmp_path / "config")
    write("mcp.json", '{"mcpServers": {"far": {"url": "http://far/mcp", "headers": {"Authorization": "env:FAR"}}}}')(
        folder
    )
    unset = "the service's environment"
    assert check_folder(folder, None)[1] == []
    problems = check_folder(folder, {})[1]
    assert f"mcp.json: mcpServers.far: headers.Authorization: FAR is not set in {unset}" in problems
    assert any(line.startswith("providers.json: provider 'openai' has no key") for line in problems)
    problems = check_folder(folder, {"FAR": "x", "OPENAI_API_KEY": "x"})[1]
    assert not [line for line in problems if "FAR" in line or "'openai'" in line]


def test_a_remote_agent_is_checked_without_calling_it(tmp_path: Path) -> None:
    folder = copy_examples(tmp_path / "config")
    remote: dict[str, Any] = {"mode": "REMOTE", "remote": {"card": "https://far/card", "token": "env:FAR"}}
    write("agents/far.json", json.dumps(remote))(folder)
    assert check_folder(folder, None)[1] == []
    unset = "agents/far.json: remote.token: env:FAR is not set in the orchestrator's environment"
    assert unset in check_folder(folder, {})[1]
    assert unset not in check_folder(folder, {"FAR": "x"})[1]
    remote["remote"] = {"card": "far", "headers": {"X-Api-Key": "in the file"}}
    write("agents/far.json", json.dumps(remote | {"skills": ["x"]}))(folder)
    fields = [line.removeprefix("agents/far.json: ").partition(":")[0] for line in check_folder(folder, None)[1]]
    assert fields == ["remote.card", "remote.headers"]


def run_check(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")}
    command = [str(Path(sys.executable).with_name("headrace")), "check", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=100, check=False)


def test_the_exit_status_reports_whether_there_are_problems(tmp_path: Path) -> None:
    good = run_check(str(EXAMPLES))
    assert (good.returncode, good.stderr) == (0, "")
    assert good.stdout.startswith(f"{EXAMPLES}: no problems (agents ")
    folder = copy_examples(tmp_path / "config")
    write("agents/cut.json", '{"mode": ')(folder)
    bad = run_check(str(folder))
    assert (bad.returncode, bad.stderr) == (1, f"{folder}: problems: 1\n")
    assert bad.stdout.startswith("agents/cut.json: line 1, column ")
    assert run_check(str(tmp_path / "nowhere")).returncode == 2


@pytest.mark.parametrize(
    ("sandbox", "has_tenants", "cost", "is_fatal"),
    [
        (Sandbox("bubblewrap"), True, "", False),
        (
            Sandbox("process", "bubblewrap: bwrap is not installed"),
            False,
            "with authentication they are refused",
            False,
        ),
        (Sandbox("process"), True, "cannot be given a network; remedy", False),
        (Sandbox(None, "bwrap is not installed"), True, "are refused; remedy: apt install bubblewrap", True),
        (Sandbox("none"), False, "unconfined", False),
    ],
)
def test_a_sandbox_tier_is_described_with_its_cost(
    sandbox: Sandbox, has_tenants: bool, cost: str, is_fatal: bool
) -> None:
    finding = describe_sandbox(sandbox, has_tenants=has_tenants)
    assert cost in finding.cost
    assert bool(cost) == bool(finding.cost)
    assert finding.is_fatal == is_fatal


async def test_with_authentication_only_bubblewrap_is_enough() -> None:
    findings = await examine_machine({"HEADRACE_AUTH": "api_key"})
    [sandbox] = [finding for finding in findings if finding.subject == "sandbox"]
    assert sandbox.is_fatal == (shutil.which("bwrap") is None) or "bwrap" in sandbox.state


async def test_a_database_that_cannot_be_reached_is_fatal_and_its_password_is_not_shown() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"postgresql://mill:hidden-4711@127.0.0.1:{taken.getsockname()[1]}/headrace"
        code, out, _ = await run("doctor", HEADRACE_DATABASE_URL=url, PATH=os.environ["PATH"])
    assert code == 1
    assert b"!! PostgreSQL" in out
    assert b"hidden" not in out
