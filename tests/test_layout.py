"""The architecture's dependency rules, checked on the source: imports, where servers are created, and where the
environment is read."""

import re
import sys
import tomllib
from collections import Counter
from collections.abc import Mapping
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.source_code import FILES, ROOT, read

BENCHMARKS = [path.relative_to(ROOT) for path in sorted((ROOT / "benchmarks").rglob("*.py"))]

TRANSPORT = {f"services/runtime/rpc/{name}.py" for name in ("server", "channels")} | {
    f"headrace/{name}.py" for name in ("client", "sync/client")
}
"""The files that may make gRPC servers and channels."""

MAKERS = ("aio.server", "insecure_channel", "secure_channel")
ENVIRONMENT = {"os.environ", "os.environb", "os.getenv"}
START = {"__main__.py", "config.py", "program.py", "transport.py", "tls.py"}
"""Names of the files that may read the environment, beside the command line and FIRST."""

ROOMS = {
    "headrace/cli": (
        "__main__.py",
        "__init__.py",
        "operating",
        "testing",
        "commands",
        "rpc_commands.py",
        "service_commands.py",
        "evaluation",
        "supervisor",
        "conversation",
        "run_view",
        "facade",
    ),
    "services/llm_gateway": (
        ".",
        "calls",
        "protocols",
        "protocols/openai",
        "protocols/openai_responses",
        "protocols/gemini",
        "protocols/bedrock",
        "protocols/anthropic",
        "protocols/common",
        "http",
        "provider_errors",
        "limits",
        "telemetry",
        "fitting",
        "providers",
    ),
    "services/simulator": (".", "protocols", "player.py", "model", "script.py", "model_request.py"),
    "services/orchestrator": (
        *(
            "__main__.py",
            "server.py",
            "operating",
            "money/limits.py",
            "service.py",
            "people/gate_service.py",
            "data",
            "cluster",
            "lifecycle",
            "modes",
            "mode_api",
        ),
        *("setup", "turn", "calls", "people"),
        *("tracing.py", "run", "money", "peers", "metrics.py", "agents", "config.py", "ids.py", "."),
    ),
    "services/tools": (
        *(
            ".",
            "user_data.py",
            "execution",
            "catalogue",
            "builtin",
            "mcp_client",
            "documents",
            "skills",
            "transfer",
        ),
        *("toolkit", "interpreter", "web", "workspace", "sandbox", "sandbox/supervisor"),
        "errors.py",
    ),
    "services/facade": (
        *(".", "console", "openapi"),
        *(
            "a2a",
            "agui",
            "mcp_server",
            "openai_api/routes.py",
            "openai_api/chat_completions",
            "openai_api/responses",
            "openai_api",
            "adapters",
        ),
        *(
            "handlers",
            "middleware",
            "sign_in",
            "responses",
            "requests",
            "peer_calls.py",
            "proto_routes.py",
            "metrics.py",
        ),
    ),
    "services/memory": (
        *("admin_cli", "migration", "__main__.py", "service.py", ".", "limits.py", "spend.py", "agents.py", "runs.py"),
        *("gates", "chats", "facts", "schedules", "webhooks", "keys", "audit.py"),
        *("context/loading.py", "context/parts.py", "compaction", "context", "chats/access.py", "data"),
        *("storage/files", "storage/postgres", "storage/postgres/connection", "storage", "importing", "log"),
        "encryption",
    ),
    "services/runtime": (
        *("rpc", "process", "telemetry", "auth"),
        *(
            "http2/server",
            "http2",
            "local",
            "calls",
            "http2/limits.py",
            "tokens",
            "net",
            ".",
        ),
    ),
}
"""The folders and files of a part from the top to the bottom: each may import what stands below it, nothing above. The
row "." is what lies in the part's own folder and has no row."""

MEMORY_PARTS = ("services.memory.__main__", "services.memory.config", "services.memory.engines")
"""What builds a memory service, for those who run one in their own process."""

CIRCLE_FILES_MAX = 2
"""Files that may import each other, type imports counted: two halves of one subject."""

IN_CIRCLES: set[str] = set()
"""Files of larger circles that are still to be cut. A line is removed, never added."""

PRIVATE_SHIM = "services/runtime/http2/h2_state.py"
"""The one file that may use another object's private names: `h2` has no public way for what it needs."""

PRIVATE_LEFT: set[str] = set()
"""Uses of another object's private names that are still to go, as "file: name". A line is removed, never added."""

ROOM_FILES_MAX = 16
"""Files of a folder, beside its __init__.py; a dozen is what a reader takes in."""

FIRST = Path("services/__init__.py")
"""Imported before everything else: what gRPC is to find when it is imported is set there."""


def may_import(file: Path, name: str) -> bool:
    """headrace ← services.runtime ← each service; a service uses another's stub. The suite may import all services to
    start them, and config_check to read files as each of them does."""
    top, service = [*name.split("."), ""][:2]
    if file.parts[:2] == ("services", "config_check"):
        return top != "tests"
    if file.parts[:2] == ("services", "suite"):
        return name.startswith("services.runtime.") or name.endswith(".__main__") or top != "services"
    if file.parts[:2] == ("services", "replay"):
        # It runs the real orchestrator, and for a fork the real memory, before peers of its own.
        return top != "services" or service in ("runtime", "replay", "orchestrator") or name.startswith(MEMORY_PARTS)
    if top == "services":
        return file.parts[0] == "services" and service in ("runtime", file.parts[1])
    return top != "tests"


def test_imports_follow_the_arrows() -> None:
    assert [f"{file}: {name}" for file in FILES for name in read(file).imports if not may_import(file, name)] == []
    assert [f"{file}: {name}" for file in BENCHMARKS for name in read(file).imports if name.startswith("tests")] == []


def find_room(part: str, file: str) -> str:
    """Return the most specific row of the part's table that a file belongs to."""
    inside = file.removeprefix(f"{part}/")
    rows = [row for row in ROOMS[part] if inside == row or inside.startswith(f"{row}/")]
    return max(rows, key=len, default=".")


@cache
def resolve_module(name: str) -> str | None:
    """Return the source file of an imported name, or None if it is not ours."""
    for path in (Path("/".join(name.split("."))), Path("/".join(name.split(".")[:-1]))):
        for file in (Path(f"{path}.py"), path / "__init__.py"):
            if (ROOT / file).is_file():
                return str(file)
    return None


def find_upward_imports(part: str) -> list[str]:
    upward: list[str] = []
    for file in (str(file) for file in FILES if str(file).startswith(f"{part}/")):
        targets = {resolve_module(name) for name in read(Path(file)).imports}
        for target in sorted(target for target in targets if target and target.startswith(f"{part}/")):
            if ROOMS[part].index(find_room(part, file)) > ROOMS[part].index(find_room(part, target)):
                upward.append(f"{file} imports {target}")
    return upward


def test_imports_within_a_part_go_only_downwards() -> None:
    assert [line for part in ROOMS for line in find_upward_imports(part)] == []
    folders = {str(file.parent) for file in FILES}
    rows = {f"{part}/{row}" for part, rows in ROOMS.items() for row in rows if row != "."}
    assert [row for row in rows if row not in folders and not (ROOT / row).is_file()] == []


def find_cycles(graph: Mapping[str, set[str]]) -> list[set[str]]:
    """Return the strongly connected components with more than one node."""
    reach = {start: find_reachable(graph, start) for start in graph}
    circles = {frozenset(other for other in reach[start] if start in reach[other]) for start in graph}
    return [{*circle} for circle in circles if len(circle) > 1]


def find_reachable(graph: Mapping[str, set[str]], start: str) -> set[str]:
    reached: set[str] = set()
    pending = [start]
    while pending:
        new = graph[pending.pop()] - reached
        reached |= new
        pending += new
    return reached


def test_files_do_not_import_each_other_in_circles() -> None:
    sources = {str(file) for file in FILES}
    graph = {
        file: {name for name in map(resolve_module, read(Path(file)).imports) if name in sources} for file in sources
    }
    circles = [circle for circle in find_cycles(graph) if len(circle) > CIRCLE_FILES_MAX]
    assert {file for circle in circles for file in circle} == IN_CIRCLES


def test_no_file_uses_private_names_of_other_files() -> None:
    files = [
        file
        for file in FILES
        if str(file) != PRIVATE_SHIM and not (file.match("headrace/v1/*") or file.match("headrace/a2a/*"))
    ]
    assert {use for file in files for use in read(file).private} == PRIVATE_LEFT


def test_a_folder_of_a_part_has_few_files() -> None:
    counts = Counter(str(file.parent) for file in FILES if file.name != "__init__.py" and find_part(file))
    assert {folder: count for folder, count in counts.items() if count > ROOM_FILES_MAX} == {}


def find_part(file: Path) -> str | None:
    return next((part for part in ROOMS if str(file).startswith(f"{part}/")), None)


def test_every_imported_package_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    lines = [*project["dependencies"], *extras["cloud"], *extras["data"], *extras["documents"]]
    declared = {canonicalize_name(Requirement(line).name) for line in lines}
    known = sys.stdlib_module_names | {"headrace", "services", "google", "pytest"}  # pytest's are those of its users
    used = {name.partition(".")[0] for file in FILES for name in read(file).imports} - known
    packages = packages_distributions()
    assert [name for name in sorted(used) if not declared & {*map(canonicalize_name, packages.get(name, ()))}] == []


def test_the_runtime_imports_no_service() -> None:
    runtime = [file for file in FILES if file.parts[1] == "runtime"]
    used = {name for file in runtime for name in read(file).imports if name.startswith("services.")}
    assert {name.split(".")[1] for name in used} == {"runtime"}


def test_servers_and_channels_are_created_in_one_place() -> None:
    others = [file for file in FILES if str(file) not in TRANSPORT and file.parts[:2] != ("headrace", "v1")]
    assert [f"{file}: {name}" for file in others for name in read(file).names if name.endswith(MAKERS)] == []


def test_the_environment_is_read_only_at_startup() -> None:
    others = [file for file in FILES if file.name not in START and file != FIRST]
    others = [file for file in others if file.parts[:2] != ("headrace", "cli")]
    assert [str(file) for file in others if ENVIRONMENT & read(file).names] == []


def test_every_service_has_the_same_shape() -> None:
    for service in ("facade", "llm_gateway", "memory", "orchestrator", "tools"):
        present = {path.name for path in (ROOT / "services" / service).iterdir()}
        assert {"__main__.py", "config.py", "service.py"} <= present, service


def test_the_checks_detect_violations() -> None:
    assert find_cycles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [{"a", "b", "c"}]
    assert read(Path(PRIVATE_SHIM)).private
    assert any(name.endswith(MAKERS) for name in read(Path("services/runtime/rpc/server.py")).names)
    assert ENVIRONMENT & read(Path("services/runtime/process/program.py")).names
    assert not may_import(Path("services/memory/service.py"), "services.tools.catalogue.catalogue.Catalogue")
    assert not may_import(Path("headrace/client.py"), "services.runtime")
    assert not may_import(Path("services/runtime/rpc/server.py"), "tests.support.order")
    assert may_import(Path("services/memory/service.py"), "services.memory.log.chat")
    assert OF_A_TEST.findall("from tests.memory.conftest import call") == ["tests.memory.conftest"]
    assert MAY_BIND_IT.search("with house() as it:")


MODES = "services/orchestrator/modes/"
MODE_SOURCES = ("services.orchestrator.mode_api.", "services.orchestrator.modes.", "services.orchestrator.agents.")
"""What modes may import of the orchestrator: their API, each other, and what agent files say."""


def test_built_in_modes_use_only_the_operators_api() -> None:
    modes = [file for file in FILES if str(file).startswith(MODES)]
    used = {(str(file), name) for file in modes for name in read(file).imports if name.startswith("services.")}
    assert [use for use in sorted(used) if not use[1].startswith(MODE_SOURCES)] == []


TESTS = [path.relative_to(ROOT) for top in ("tests", "trials") for path in sorted((ROOT / top).rglob("*.py"))]
OF_A_TEST = re.compile(r"^\s*(?:from|import) (tests(?:\.\w+)*\.(?:test_\w+|conftest))\b", re.MULTILINE)
MAY_BIND_IT = re.compile(r"\b(?:as|for) it\b|\bit(?:,| =|: )")


def test_tests_import_nothing_from_test_modules_and_conftests() -> None:
    found = {str(file): OF_A_TEST.findall((ROOT / file).read_text()) for file in TESTS}
    assert {file: names for file, names in found.items() if names} == {}


def test_no_test_variable_is_named_it() -> None:
    # Only a file that may have one is parsed: to parse all tests takes longer than all other rules together.
    files = [file for file in TESTS if MAY_BIND_IT.search((ROOT / file).read_text())]
    assert [str(file) for file in files if "it" in read(file).bound] == []
