"""gRPC clients in other languages: stubs generated from the protos without options, and clients that use reflection."""

import asyncio
import io
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format, proto

from headrace.event_json import parse_event
from headrace.v1 import agent_pb2, memory_pb2
from tests.support.clients.catalogue import ROOT
from tests.support.clients.programs import Served, check_row, find_version, get_environment, run_program

pytestmark = pytest.mark.asyncio(loop_scope="session")

IMAGE = ROOT / "build" / "image.binpb"
GRPCURL = ROOT / "tests" / "e2e" / "grpcurl"
GHZ = ROOT / "tests" / "clients" / "ghz"
EXAMPLES = ROOT / "examples" / "clients"
POM = EXAMPLES / "java" / "pom.xml"

needs_go = pytest.mark.skipif(shutil.which("go") is None, reason="NOTICE: Go is not installed: grpcurl is not tried")


async def check_example(served: Served, command: Sequence[str | Path]) -> None:
    """Assert that an example of examples/clients folds a run, and cancels one."""
    address = served.suite.grpc
    assert await run_program([*command, address, "tools", "What time?"]) == "answer: It is late.\nend: complete, stop\n"
    stopped = await run_program([*command, address, "words", "Wait.", "cancel"])
    assert re.fullmatch(r"answer: first (words )?\nend: cancelled\n", stopped)


async def test_the_go_example_folds_and_cancels_a_run(served: Served) -> None:
    await check_example(served, [get_environment("go") / "client"])
    check_row("grpc-go", find_version(EXAMPLES / "go" / "go.mod", "google.golang.org/grpc "))


@pytest.mark.nightly
async def test_the_fold_of_the_go_example_equals_ours(tmp_path: Path) -> None:
    get_environment("go")
    cases: list[dict[str, Any]] = json.loads((ROOT / "tests" / "fold_cases.json").read_text())
    for case in cases:
        case |= {key: case["state"][key] for key in ("runId", "lastSeq", "answer")}
        case["isOver"] = case["state"]["end"] is not None
        case["events"] = [json_format.MessageToDict(parse_event(json.dumps(event))) for event in case["events"]]
    (tmp_path / "cases.json").write_text(json.dumps(cases))
    options = [f"FOLD_CASES={tmp_path / 'cases.json'}", "CGO_ENABLED=0"]
    await run_program(["env", *options, "go", "test", "-trimpath", "."], EXAMPLES / "go")


async def test_the_typescript_example_folds_and_cancels_a_run(served: Served) -> None:
    await check_example(served, ["node", get_environment("typescript") / "build" / "main.js"])
    check_row("connect-node (TypeScript)", find_version(EXAMPLES / "typescript" / "package.json", 'connect-node": "'))


@pytest.mark.nightly
async def test_the_java_example_folds_and_cancels_a_run(served: Served) -> None:
    folder = get_environment("java")
    classes = f"{folder / 'target' / 'classes'}:{(folder / 'classpath').read_text()}"
    await check_example(served, ["java", "-cp", classes, "example.Main"])
    check_row("grpc-java", find_version(POM, "<grpc.version>"))


@pytest.mark.nightly
async def test_the_fold_of_the_java_example_equals_ours(tmp_path: Path) -> None:
    folder = get_environment("java")
    cases: list[dict[str, Any]] = json.loads((ROOT / "tests" / "fold_cases.json").read_text())
    for case_number, case in enumerate(cases):
        events = io.BytesIO()
        for event in case["events"]:
            proto.serialize_length_prefixed(parse_event(json.dumps(event)), events)
        (tmp_path / f"{case_number}.events").write_bytes(events.getvalue())
    classes = ":".join(str(folder / "target" / name) for name in ("classes", "test-classes"))
    await run_program(["java", "-cp", f"{classes}:{(folder / 'classpath').read_text()}", "example.FoldCases", tmp_path])
    for case_number, case in enumerate(cases):
        state = case["state"]
        expected = [state["runId"], str(state["lastSeq"]), "false" if state["end"] is None else "true", state["answer"]]
        assert (tmp_path / f"{case_number}.events.state").read_text().split("\n", 3) == expected, case["name"]


async def test_grpc_js_reads_20000_deltas_and_cancels(served: Served) -> None:
    program = get_environment("node") / "programs" / "grpc_js.mjs"
    keep_links = ["--preserve-symlinks", "--preserve-symlinks-main"]
    report = json.loads(await run_program(["node", *keep_links, program, served.suite.grpc, IMAGE]))
    assert report["results"] == [200_000, "run_complete", "run_cancel"]
    check_row("grpc-js", report["version"])


@pytest.mark.nightly
@needs_go
async def test_grpcurl_describes_every_method(served: Served) -> None:
    services = {
        served.suite.grpc: agent_pb2.DESCRIPTOR.services_by_name["AgentService"],
        served.suite.memory: memory_pb2.DESCRIPTOR.services_by_name["MemoryService"],
    }
    grpcurl = (await run_program(["go", "tool", "-n", "grpcurl"], GRPCURL)).strip()
    for address, service in services.items():
        for method in service.methods:
            description = await run_program([grpcurl, "-plaintext", address, "describe", method.full_name])
            request_type, reply_type = method.input_type.full_name, method.output_type.full_name
            assert re.search(
                rf"rpc {method.name} \( \.{request_type} \) returns \( (stream )?\.{reply_type} \)", description
            )
    check_row("grpcurl", find_version(GRPCURL / "go.mod", "fullstorydev/grpcurl "))


@pytest.mark.nightly
async def test_ghz_generates_load_by_reflection(served: Served) -> None:
    ghz = get_environment("ghz") / "ghz"
    for method, request in (
        ("AgentService.ListAgents", {}),
        ("AgentService/Query", {"agentKey": "words", "message": "Count."}),
    ):
        load = ["--insecure", "-n", "20", "-c", "4", "-O", "json", "-d", json.dumps(request)]
        report = json.loads(await run_program([ghz, *load, "--call", f"headrace.v1.{method}", served.suite.grpc]))
        assert report["statusCodeDistribution"] == {"OK": 20}
    check_row("ghz", find_version(GHZ / "go.mod", "bojand/ghz "))


async def test_buf_curl_streams_a_run_by_reflection_and_gets_error_details(served: Served) -> None:
    buf = Path(sys.executable).with_name("buf")
    curl = (buf, "curl", "--protocol", "grpc", "--http2-prior-knowledge", "--data")
    address = f"http://{served.suite.grpc}/headrace.v1.AgentService/Query"
    output = await run_program([*curl, json.dumps({"agentKey": "words", "message": "Count."}), address])
    pieces: list[Any] = re.findall(r'"delta": ?"([^"]*)"', output)
    assert pieces == ["one ", "two ", "three"]
    wrong = [*curl, json.dumps({"agentKey": "nobody", "message": "Count."}), address]
    refused = await asyncio.to_thread(subprocess.run, wrong, capture_output=True, check=False)
    error = json.loads(refused.stderr)
    assert error["code"] == "not_found"
    assert error["message"].startswith("no agent has the key 'nobody'; known keys:")
    assert error["details"][0]["type"] == "google.rpc.ErrorInfo"
    check_row("buf curl", (await run_program([buf, "--version"])).strip())
