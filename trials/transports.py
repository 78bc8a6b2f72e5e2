"""Run the tests of the RPC transports on grpcio and in memory, and the whole suite as `--split` runs it."""

import argparse

from trials.support.commands import make, run_python, worst

NIGHTLY: list[str] = []

REFLECTION = "test_buf_curl_streams_a_run_by_reflection_and_gets_error_details"
END_TO_END = ("crash", "main_job", "leaving", "conformance", "files", "trace")
HANDLERS = ("tests/conformance", "tests/facade/a2a", "tests/test_streams.py", "tests/test_client.py")

PASSES: dict[str, tuple[dict[str, str], list[str]]] = {
    "grpcio": (
        {"HEADRACE_TRANSPORT": "grpcio"},
        [
            *("tests/runtime", "--ignore=tests/runtime/http2", *HANDLERS),
            *(f"tests/e2e/test_{name}.py" for name in (*END_TO_END[1:], "grpc_examples")),
            f"tests/clients/test_grpc.py::{REFLECTION}",
            "tests/e2e/test_crash.py::test_a_killed_service_is_restarted_and_the_run_completes",
            "tests/tools/test_main.py::test_commands_start_while_other_calls_start_and_end",
        ],
    ),
    "local": (
        {"HEADRACE_TRANSPORT": "local"},
        [*(f"tests/runtime/{name}" for name in ("local", "rpc", "auth")), *HANDLERS],
    ),
    "split": ({"SUITE_FORM": "--split"}, [f"tests/e2e/test_{name}.py" for name in (*END_TO_END, "effects")]),
    "all-grpcio": (
        {"HEADRACE_TRANSPORT": "grpcio"},
        # Our own transport, and replicas, which need it: one channel to several addresses.
        ["--ignore=tests/runtime/http2", "--ignore=tests/cluster"],
    ),
}
"""The environment and the tests of each pass.

Only the handlers and commands depend on the transport: commands are forked next to gRPC's threads.
"""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m trials transports", description=__doc__)
    parser.add_argument("passes", nargs="*", help=", ".join(PASSES))
    names: list[str] = parser.parse_args(arguments).passes or ["grpcio", "local", "split"]
    make("small-clients")
    return worst(run_python("tests.run", *tests, **settings) for settings, tests in map(PASSES.__getitem__, names))
