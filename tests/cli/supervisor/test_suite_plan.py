"""The processes that `headrace up` starts, and its warnings about settings that it overrides."""

from pathlib import Path

import pytest

from headrace.cli.supervisor.suite_plan import ProcessSpec, SuitePlan, describe_overruled_settings


def make_plan(tmp_path: Path, *, is_one_process: bool, replicas: int = 1) -> SuitePlan:
    return SuitePlan(
        config_dir=tmp_path,
        data_dir=tmp_path,
        run_dir=tmp_path,
        http_port=1,
        grpc_port=2,
        memory_port=3,
        simulator_port=None,
        is_one_process=is_one_process,
        replicas=replicas,
    )


def test_one_process_has_the_settings_of_all_services_but_tools(tmp_path: Path) -> None:
    suite, tools = make_plan(tmp_path, is_one_process=True).build_processes()
    assert (suite.name, tools.name) == ("suite", "tools")
    assert suite.environment["HEADRACE_TRANSPORT"] == "local"
    listening = {name for name in suite.environment if name.endswith(("_LISTEN", "_PORT"))}
    assert listening == {
        "HEADRACE_FACADE_PORT",
        *(f"HEADRACE_{name}_LISTEN" for name in ("ORCHESTRATOR", "LLM_GATEWAY", "MEMORY")),
    }
    assert suite.environment["HEADRACE_FACADE_TOOLS_ADDRESS"] == tools.environment["HEADRACE_TOOLS_LISTEN"]
    assert suite.environment["HEADRACE_INTERNAL_TOKEN"] == tools.environment["HEADRACE_INTERNAL_TOKEN"]


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("HEADRACE_ORCHESTRATOR_LISTEN", "use --grpc-port"),
        ("HEADRACE_MEMORY_LISTEN", "use --memory-port"),
        ("HEADRACE_FACADE_TOOLS_ADDRESS", "start the services one by one"),
        ("HEADRACE_ORCHESTRATOR_ADVERTISE", "start the services one by one"),
    ],
)
@pytest.mark.parametrize("is_one_process", [True, False])
def test_an_overruled_setting_is_named_with_its_replacement(
    tmp_path: Path, is_one_process: bool, name: str, instead: str
) -> None:
    (warning,) = describe_overruled_settings(
        make_plan(tmp_path, is_one_process=is_one_process).build_processes(), {name: "127.0.0.1:9"}
    )
    assert warning.startswith(f"warning: {name} is not used here")
    assert instead in warning


def test_a_setting_that_reaches_its_service_is_not_named() -> None:
    env = {"HEADRACE_TOOLS_METRICS_LISTEN": "127.0.0.1:9", "HEADRACE_TOOLS_LISTEN": "127.0.0.1:8", "LISTEN": "x"}
    assert describe_overruled_settings([ProcessSpec("tools", (), env)], env) == []


def test_replicas_share_ports_and_peers_but_not_address_and_metrics_port(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_ORCHESTRATOR_METRICS_LISTEN", "127.0.0.1:9464")
    monkeypatch.setenv("HEADRACE_LLM_GATEWAY_REPLICAS", "3")
    suite_plan = make_plan(tmp_path, is_one_process=True, replicas=2)
    *suites, tools, memory = suite_plan.build_processes()
    first, second = (suite.environment for suite in suites)
    assert [suite.command[-4:] for suite in suites] == [("services.suite", "facade", "orchestrator", "llm_gateway")] * 2
    differing = {name for name in first.keys() | second.keys() if first.get(name) != second.get(name)}
    assert differing == {
        "HEADRACE_FACADE_SOCKET",
        "HEADRACE_FACADE_ORCHESTRATOR_ADDRESS",
        "HEADRACE_ORCHESTRATOR_LISTEN",
        "HEADRACE_ORCHESTRATOR_ADVERTISE",
        "HEADRACE_ORCHESTRATOR_LLM_GATEWAY_ADDRESS",
        "HEADRACE_ORCHESTRATOR_METRICS_LISTEN",
        "HEADRACE_LLM_GATEWAY_LISTEN",
    }
    for number, environment in enumerate((first, second)):
        assert environment["HEADRACE_REUSE_PORT"] == "true"
        assert environment["HEADRACE_ORCHESTRATOR_METRICS_LISTEN"] == f"127.0.0.1:{9464 + number}"
        assert environment["HEADRACE_LLM_GATEWAY_REPLICAS"] == "6"
        assert environment["HEADRACE_ORCHESTRATOR_LISTEN"].startswith(environment["HEADRACE_ORCHESTRATOR_ADVERTISE"])
    assert [*map(str, suite_plan.entrances.values())] == [env["HEADRACE_FACADE_SOCKET"] for env in (first, second)]
    gateways = ",".join(env["HEADRACE_LLM_GATEWAY_LISTEN"] for env in (first, second))
    for process in (tools, memory):
        assert process.environment[f"HEADRACE_{process.name.upper()}_LLM_GATEWAY_ADDRESS"] == gateways
        assert "HEADRACE_REUSE_PORT" not in process.environment
    settings = {"HEADRACE_ORCHESTRATOR_METRICS_LISTEN": "127.0.0.1:9464"}
    assert describe_overruled_settings(suite_plan.build_processes(), settings) == []
