"""Paste each block of the guides and of README.md, unchanged, into a shell next to a running suite.

Readers have a clone, `make up` in another window (default ports), the virtual environment's programs, and no
bubblewrap. Blocks are not modified. A block `file PATH` is written to that file. Blocks marked `run`, and
unmarked shell commands, are pasted into their interpreter: sh into bash, python into Python, js into node.
Blocks marked `output` must be printed; … matches anything. Blocks in other languages (json, yaml, ts, go, text)
are only for reading. Known failures are listed in EXPECTED; an expected failure that passes also fails the
trial.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support.pages import GUIDES, ROOT, Block, find_missing_line, list_blocks

PAGES = (ROOT / "README.md", *sorted(GUIDES.glob("*.md")))

NIGHTLY: list[str] = []

BLOCK_S = 60.0
READY_S = 180.0

COMMANDS = {"sh": ["bash", "-e"], "python": ["python", "-"], "js": ["node", "--input-type=module", "-"]}

FAILING = {
    "clients": (1, 3),
    "modes": (4,),
    "people": (1, 6, 8, 9, 11, 12, 16, 18, 20, 25, 27),
    "testing": (2, 3, 5, 10),
}
"""Numbers of the blocks that currently fail, by page."""

OWNED = "owned by 'The first hour, and the hundredth', 1: the guides' programs cannot be pasted"

EXPECTED = {f"{page} {number}": OWNED for page, numbers in FAILING.items() for number in numbers}
"""Currently failing blocks, and the issue that owns them."""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="guides", description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("page", nargs="*", help="names of pages, such as first-agent; none: all")
    pages = parser.parse_args(arguments).page
    failures: dict[str, str] = {}
    tried = 0
    for page in PAGES:
        if not pages or page.stem in pages:
            for name, problem in try_page(page):
                tried += 1
                print(f"{name}: {problem.splitlines()[-1] if problem else 'ok'}", flush=True)
                if problem:
                    failures[name] = problem
    unexpected = {name: problem for name, problem in failures.items() if name not in EXPECTED}
    held = [] if pages else [name for name in EXPECTED if name not in failures]
    for name, problem in unexpected.items():
        print(f"\n{name} failed:\n{problem}")
    for name in held:
        print(f"{name} holds now: take it off the list")
    failed = len(unexpected) + len(held)
    for name in failures.keys() & EXPECTED.keys():
        print(f"{name} failed as expected: {EXPECTED[name]}")
    print(f"{tried - len(failures)} passed, {failed} failed")
    return 1 if failed else 0


def try_page(page: Path) -> Generator[tuple[str, str]]:
    """Yield the name of each pasted block and its problem, empty if there is none."""
    blocks = list_blocks(page)
    if not any(is_pasted(block) for block in blocks):
        return
    with tempfile.TemporaryDirectory(prefix="guide-") as name:
        clone, programs = Path(name) / "clone", Path(name) / "programs"
        make_clone(clone)
        link_programs(programs)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")}
        environment |= {"PATH": str(programs), "HOME": name}
        for path, text in [(block.use.removeprefix("file "), block.text) for block in blocks if is_file(block)]:
            (clone / path).parent.mkdir(parents=True, exist_ok=True)
            (clone / path).write_text(text)
        with running_suite(clone, environment):
            for number, block in enumerate(blocks, start=1):
                if is_pasted(block):
                    after = blocks[number] if number < len(blocks) else Block("", "", "")
                    output = after.text if after.use == "output" else ""
                    yield f"{page.stem} {number}", paste(block, output, clone, environment)


def is_file(block: Block) -> bool:
    return block.use.startswith("file ")


def is_pasted(block: Block) -> bool:
    return block.form in COMMANDS and block.use in (("", "run") if block.form == "sh" else ("run",))


def paste(block: Block, output: str, clone: Path, environment: dict[str, str]) -> str:
    """Run a block as a reader who pastes it would; return its problem, empty if there is none."""
    process = subprocess.Popen(
        COMMANDS[block.form],
        cwd=clone,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        text=True,
    )
    try:
        printed, _ = process.communicate(block.text, timeout=BLOCK_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return f"it has not ended in {BLOCK_S:g} s"
    if process.returncode != 0:
        return f"{printed}\nit ended with {process.returncode}"
    missing = find_missing_line(printed, output)
    return "" if missing is None else f"{printed}\nit did not print {missing!r}"


def make_clone(folder: Path) -> None:
    """Create a folder that looks like a clone; parts that readers write to are copied, the rest is linked."""
    folder.mkdir()
    for entry in ROOT.iterdir():
        if entry.name not in ("examples", ".data", ".git"):
            (folder / entry.name).symlink_to(entry)
    shutil.copytree(ROOT / "examples", folder / "examples")


def link_programs(folder: Path) -> None:
    """Create a folder of all programs except bubblewrap, with precedence for the virtual environment's."""
    folder.mkdir()
    for place in (str(Path(sys.executable).parent), *os.environ["PATH"].split(os.pathsep)):
        for program in Path(place).glob("*") if Path(place).is_dir() else ():
            link = folder / program.name
            if program.name != "bwrap" and not link.is_symlink():
                link.symlink_to(program)
    # A linked Python does not find its virtual environment, so scripts replace these links.
    for name in ("python", "python3"):
        (folder / name).unlink(missing_ok=True)
        (folder / name).write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        (folder / name).chmod(0o755)


@contextmanager
def running_suite(clone: Path, environment: dict[str, str]) -> Generator[None]:
    """Run the same command as `make up`, on its ports, inside the block."""
    command = ["headrace", "up", "--simulate", "--config-dir", "examples", "--data-dir", ".data"]
    log = clone / "up.log"
    with log.open("w") as output:
        suite = subprocess.Popen(command, cwd=clone, env=environment, stdout=output, stderr=output)
    try:
        wait = [
            "timeout",
            str(READY_S),
            "sh",
            "-c",
            f"until grep -q ready: {log}; do kill -0 {suite.pid}; sleep 0.1; done",
        ]
        if subprocess.run(wait, check=False).returncode or suite.poll() is not None:
            raise SystemExit(f"headrace up did not come up:\n{log.read_text()}")
        yield
    finally:
        suite.terminate()
        suite.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
