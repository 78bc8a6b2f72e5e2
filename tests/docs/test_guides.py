"""Every guide does what it says: its files are put into a copy of the examples, its commands and programs are run
against a suite over that folder, and print what the page shows. The words behind a fence say what a block is:
`file PATH`, `run`, `output` (… stands for anything). A block without such a word is not run.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from services.simulator.server import simulator
from tests.support.pages import GUIDES, ROOT, Block, check_output, list_blocks
from tests.support.suite import Running, up

PAGES = sorted(page for page in GUIDES.glob("*.md") if page.name != "README.md")
IN_THE_CHECK = ("first-agent", "facts")
"""Pages that are followed there; the nightly follows them all."""

RUN_TIMEOUT_S = 600.0


class Step(NamedTuple):
    """A program of a page, and what it prints."""

    form: str
    text: str
    output: str


def list_steps(blocks: list[Block]) -> Iterator[Step]:
    for block, after in pairwise([*blocks, Block("", "", "")]):
        if block.use == "run":
            assert after.use == "output", f"the page does not say what this prints: {block.text}"
            yield Step(block.form, block.text, after.text)


def write_files(blocks: list[Block], folder: Path) -> object:
    """Write the files of a page over a copy of the examples; returns the script of its provider, if it has one."""
    shutil.copytree(ROOT / "examples", folder / "examples")
    files = {block.use.removeprefix("file "): block.text for block in blocks if block.use.startswith("file ")}
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return next((json.loads(text) for name, text in files.items() if "/" not in name), ())


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, id=page.stem, marks=[pytest.mark.nightly] * (page.stem not in IN_THE_CHECK)) for page in PAGES],
)
async def test_a_guide_does_what_it_says(page: Path, tmp_path: Path) -> None:
    blocks = list_blocks(page)
    script = await asyncio.to_thread(write_files, blocks, tmp_path)
    async with simulator(script) as provider:
        folders = ("--config-dir", str(tmp_path / "examples"), "--data-dir", str(tmp_path / "data"))
        host = provider.base_url.removeprefix("http://").removesuffix("/v1")
        web = {"HEADRACE_TOOLS_SEARCH_URL": f"http://{host}/search", "HEADRACE_TOOLS_FETCH_ALLOW": host}
        async with up(*folders, SIMULATOR_URL=provider.base_url, **web) as suite:
            for step in list_steps(blocks):
                check_output(await run_step(step, tmp_path, suite), step.output)
    assert await asyncio.to_thread(list_refusals, tmp_path / "data") == []


async def run_step(step: Step, folder: Path, suite: Running) -> str:
    """Run a program of a page, and return what it prints."""
    cwd, text = folder, step.text.replace("http://127.0.0.1:8080", suite.url)
    match step.form:
        case "sh":
            command = ["bash", "-euo", "pipefail", "-c", text]
        case "python":
            command = [sys.executable, "-c", f"GRPC = {suite.grpc!r}\n{text}"]
        case "js":
            (folder / "program.mjs").write_text(text)
            command = ["node", "program.mjs"]
        case "go":
            (folder / "main.go").write_text(text)
            cwd, command = ROOT / "deploy" / "gateway" / "gen", ["go", "run", str(folder / "main.go"), suite.grpc]
        case form:
            raise AssertionError(f"nothing runs {form}")
    if shutil.which(command[0]) is None or not cwd.exists():
        pytest.skip(f"{command[0]} or {cwd.name} is missing: the rest of this page is NOT tried")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "HEADRACE_URL": suite.url, "PYTHONPATH": str(ROOT)}
    process = await asyncio.create_subprocess_exec(
        *command, cwd=cwd, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    async with asyncio.timeout(RUN_TIMEOUT_S):
        output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    return output.decode()


def list_refusals(data_dir: Path) -> list[str]:
    """What the services said of files that they refused."""
    lines = [line for log in data_dir.glob("logs/*.log") for line in log.read_text().splitlines()]
    return [line for line in lines if "file refused" in line]


def test_output_is_compared_line_by_line() -> None:
    check_output("a\nb 1\nc\n", "a\nb …\n")
    with pytest.raises(AssertionError, match="no line 'a'"):
        check_output("b\na\n", "b\na\na")
    with pytest.raises(AssertionError, match="no line"):
        check_output("abc\n", "a")
