"""What `headrace up` starts, and what it says of settings that it does not pass on."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.cli.supervisor.suite_plan import ProcessSpec, SuitePlan, describe_overruled_settings


def plan(tmp_path: Path, *, is_one_process: bool) -> SuitePlan:
    return SuitePlan(
        config_dir=tmp_path,
        data_dir=tmp_path,
        run_dir=tmp_path,
        http_port=1,
        grpc_port=2,
        memory_port=3,
        simulator_port=None,
        is_one_process=is_one_process,
    )


def test_one_process_has_the_settings_of_all_services_but_tools(tmp_path: Path) -> None:
    suite, tools = plan(tmp_path, is_one_process=True).build_processes()
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
def test_a_setting_that_the_suite_overrules_is_named_with_what_to_use(
    tmp_path: Path, is_one_process: bool, name: str, instead: str
) -> None:
    (warning,) = describe_overruled_settings(
        plan(tmp_path, is_one_process=is_one_process).build_processes(), {name: "127.0.0.1:9"}
    )
    assert warning.startswith(f"warning: {name} is not used here")
    assert instead in warning


def test_a_setting_that_reaches_its_service_is_not_named() -> None:
    env = {"HEADRACE_TOOLS_METRICS_LISTEN": "127.0.0.1:9", "HEADRACE_TOOLS_LISTEN": "127.0.0.1:8", "LISTEN": "x"}
    assert describe_overruled_settings([ProcessSpec("tools", (), env)], env) == []
