"""The options of the protos are consistent, and no code has its own list of the services."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf.descriptor import ServiceDescriptor

from headrace.contract import FILES, RPCS, SERVICES, Rpc
from headrace.v1 import common_pb2
from services.runtime.auth.callers import CLIENT
from services.runtime.auth.callers import SERVICES as SUITE
from tests.support.source_code import ROOT

EVERY = pytest.mark.parametrize("rpc", RPCS.values(), ids=lambda rpc: rpc.name)

FEW = 2
"""Names of services that may be listed: a list of more is one of those that another service makes outdated."""

MODULES = {Path(file.name).stem + "_pb2" for file in FILES}


@EVERY
def test_an_rpc_declares_its_server_and_its_callers(rpc: Rpc) -> None:
    assert rpc.server in SUITE
    assert rpc.callers
    assert rpc.callers <= SUITE | {CLIENT}
    assert not (rpc.without_user and CLIENT in rpc.callers)


@pytest.mark.parametrize("service", SERVICES.values(), ids=lambda service: service.name)
def test_an_rpc_is_public_only_by_its_own_option(service: ServiceDescriptor) -> None:
    assert {*service.GetOptions().Extensions[common_pb2.default_callers]} <= SUITE


@EVERY
def test_a_client_call_refers_only_to_existing_fields(rpc: Rpc) -> None:
    if (call := rpc.client) is None:
        return
    assert CLIENT in rpc.callers
    fields, answered = rpc.descriptor.input_type.fields_by_name, rpc.descriptor.output_type.fields_by_name
    given = [*call.required, *call.optional]
    assert len(set(given)) == len(given)
    assert {*given, *call.names} <= {*fields}
    assert not call.returns or call.returns in answered
    assert not call.all_pages or (answered[call.returns].is_repeated and "next_page_token" in answered)


def find_lists(source: str) -> Iterator[set[str]]:
    """Yield the services, by name or by module, that each list in the source names."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.List | ast.Tuple | ast.Set):
            yield {name for item in node.elts if (name := find_service(ast.unparse(item)))}


def find_service(item: str) -> str:
    if match := re.fullmatch(r"['\"](?:/?headrace\.v1\.)?(\w+?)(?:Service)?/?['\"]", item):
        name = f"{match[1]}Service"
        return name if name in SERVICES else ""
    match = re.fullmatch(r"(\w+_pb2)(\.DESCRIPTOR(\.services_by_name\[.*\])?)?", item)
    return match[1] if match and match[1] in MODULES else ""


def test_every_list_of_services_is_derived() -> None:
    files = [path for top in ("docs", "headrace", "services", "tests") for path in (ROOT / top).rglob("*.py")]
    files = [path for path in files if "console" not in path.parts]  # whose pages have the same titles
    listed = {str(path): found for path in files for found in find_lists(path.read_text()) if len(found) > FEW}
    assert listed == {}


def test_the_check_detects_a_list_of_services() -> None:
    for source in (
        "OF_MEMORY = ('AuditService', 'KeyService', 'MemoryService')",
        "names = [f'headrace.v1.{name}Service' for name in ('Agent', 'Gate', 'Data')]",
        "files = {agent_pb2, gates_pb2.DESCRIPTOR, llm_pb2}",
    ):
        assert max(map(len, find_lists(source))) > FEW
