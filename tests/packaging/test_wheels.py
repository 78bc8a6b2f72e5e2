"""The two distributions in clean environments: what each contains, and a client that calls a server."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import venv
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytestmark = pytest.mark.nightly  # each environment is made anew: a minute

ROOT = Path(__file__).parents[2]

CLIENT_NEEDS = {"googleapis-common-protos", "grpcio", "protobuf"}

QUERY = """
import asyncio, sys
from headrace.client import Client
from headrace.runs.fold import Fold

async def main() -> None:
    state = Fold()
    async with Client(sys.argv[1]) as headrace, headrace.ask("Hello?", agent_key="assistant") as deltas:
        async for delta in deltas:
            state.apply(delta)
    print(state.end.WhichOneof("payload"), bool(state.answer))

asyncio.run(main())
"""

FILES = """
import json
from importlib.metadata import distribution

names = ("headrace", "headrace-client")
print(json.dumps([[str(file) for file in distribution(name).files or ()] for name in names]))
"""


class Environment:
    """A virtual environment in a folder of its own, which sees nothing of the checkout."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        venv.create(folder)

    def run(self, program: str, *arguments: str) -> str:
        return self._run(str(self._folder / "bin" / program), *arguments)

    def run_pip(self, *arguments: str) -> str:
        """Run this process's pip on the environment, which has none of its own."""
        return self._run(sys.executable, "-m", "pip", "--python", str(self._folder / "bin" / "python"), *arguments)

    def _run(self, *command: str) -> str:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        ran = subprocess.run(command, capture_output=True, text=True, cwd=self._folder, env=environment)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    def install(self, *arguments: str | Path) -> None:
        self.run_pip("install", "--quiet", "--no-compile", *map(str, arguments))

    @contextmanager
    def start_suite(self, data_dir: Path) -> Generator[str]:
        """`headrace up --simulate` on free ports: what it prints when it is ready."""
        ports = ("--port", "0", "--grpc-port", "0", "--simulate-port", "0")
        folders = ("--config-dir", str(ROOT / "examples"), "--data-dir", str(data_dir))
        command = [str(self._folder / "bin" / "headrace"), "up", "--simulate", *ports, *folders]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=self._folder) as suite:
            assert suite.stdout is not None
            try:
                yield suite.stdout.readline()
            finally:
                suite.send_signal(signal.SIGTERM)


@pytest.fixture(scope="module")
def wheels() -> Generator[tuple[Path, Path]]:
    """The client's wheel and the server's, built from a copy of what is under version control."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tracked = ["git", "ls-files", "-z", "pyproject.toml", "headrace", "services", "packaging"]
        for file in subprocess.check_output(tracked, cwd=ROOT, text=True).split("\0"):
            if (ROOT / file).is_file():
                (folder / file).parent.mkdir(parents=True, exist_ok=True)
                (folder / file).write_bytes((ROOT / file).read_bytes())
        build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", "dist"]
        subprocess.run([*build, "./packaging/client", "./packaging/server"], check=True, cwd=folder)
        yield next(folder.glob("dist/headrace_client-*.whl")), next(folder.glob("dist/headrace-*.whl"))


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory, wheels: tuple[Path, Path]) -> Environment:
    environment = Environment(tmp_path_factory.mktemp("client"))
    environment.install("-c", ROOT / "constraints.txt", wheels[0])
    return environment


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, wheels: tuple[Path, Path]) -> Environment:
    environment = Environment(tmp_path_factory.mktemp("server"))
    environment.install("--require-hashes", "-r", ROOT / "packaging" / "hashes" / "suite.txt")
    environment.install("--no-deps", *wheels)
    return environment


def test_the_client_brings_three_libraries_and_no_server(client: Environment) -> None:
    metadata = client.run("python", "-c", "import importlib.metadata as m; print(*m.requires('headrace-client'))")
    assert set(re.findall(r"([a-z-]+)>=", metadata)) == CLIENT_NEEDS
    installed = {package["name"] for package in json.loads(client.run_pip("list", "--format", "json"))}
    # typing_extensions is grpcio's own need.
    assert installed == CLIENT_NEEDS | {"headrace-client", "typing_extensions"}
    find = "import importlib.util as u; print(*(u.find_spec(name) for name in ('services', 'headrace.cli')))"
    assert client.run("python", "-c", find) == "None None\n"


def test_the_hashed_packages_satisfy_all_requirements_of_the_server(server: Environment) -> None:
    assert server.run_pip("check") == "No broken requirements found.\n"


def test_a_client_asks_a_server(client: Environment, server: Environment, tmp_path: Path) -> None:
    with server.start_suite(tmp_path) as ready:
        address = re.search(r"grpc (\S+)", ready)
        assert address is not None, ready
        assert client.run("python", "-c", QUERY, address[1]) == "run_complete True\n"


def test_the_two_distributions_share_no_file(server: Environment) -> None:
    theirs, ours = (set(files) for files in json.loads(server.run("python", "-c", FILES)))
    assert {"headrace/client.py", "headrace/runs/fold.py", "headrace/v1/agent_pb2.py"} <= ours
    assert {"headrace/cli/__init__.py", "services/facade/__main__.py"} <= theirs
    assert theirs & ours == set()
    assert not {file for file in ours if file.startswith(("services/", "headrace/cli/"))}
