"""Paste each block of the guides, of docs/start.md and of README.md, unchanged, into a shell next to a running suite.

Readers have a clone, the virtual environment's programs, and a suite in another window: the command of `make up`, or
the block marked `window` of a page that this one names: of first-agent.md if it works in ~/mill. A page's own block
`window` replaces what runs there. A block `file PATH` is saved
to that file. Blocks marked `run`, and unmarked shell commands, are pasted into their interpreter: sh into bash, python
into Python, js into node. Blocks marked `output` must be printed; … matches anything. All other blocks are only for
reading. Nothing else is set, written or passed on. The suite has its default ports in a network of its own.
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path

from tests.support.pages import GUIDES, ROOT, Block, find_missing_line, list_blocks

PAGES = (ROOT / "README.md", ROOT / "docs" / "start.md", *sorted(GUIDES.glob("*.md")))

NIGHTLY: list[str] = []

BLOCK_S = 120.0
READY_S = 180.0
SAVED_S = 2.0
"""How long a reader takes from saving a file to the next command; the suite looks at its files each second."""

MILL = "~/mill"
"""The folder of a reader's own, which pages name that work there."""

UP = "exec headrace up --simulate --config-dir examples --data-dir .data"
"""The command of `make up`."""

NAMED_WINDOW = re.compile(r"start the suite as in\s+\[[^]]+\]\(([\w-]+\.md)")

COMMANDS = {"sh": "", "python": "exec python -", "js": "exec node --input-type=module -"}
"""Commands that receive a block as their input; `sh` is the shell itself."""

SHELL = 'touch ~/.exported; . ~/.exported; trap "export -p >~/.exported" EXIT'
"""Keeps what a block exports for the blocks after it, as one shell does."""

OWN_NETWORK = ["unshare", "--map-root-user", "--net", "--kill-child", "sh", "-c", 'ip link set lo up; exec "$@"', "sh"]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="guides", description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("page", nargs="*", help="names of pages, such as first-agent; none: all")
    parser.add_argument("--without-bubblewrap", action="store_true")
    parser.add_argument("--here", action="store_true", help="use this machine's network, with the default ports")
    options = parser.parse_args(arguments)
    if not options.here:
        return subprocess.run([*OWN_NETWORK, sys.executable, "-m", "trials.guides", "--here", *arguments]).returncode
    failures: dict[str, str] = {}
    tried = 0
    for page in PAGES:
        if not options.page or page.stem in options.page:
            for name, problem in try_page(page, without=("bwrap",) if options.without_bubblewrap else ()):
                tried += 1
                print(f"{name}: {problem.splitlines()[-1] if problem else 'ok'}", flush=True)
                if problem:
                    failures[name] = problem
    for name, problem in failures.items():
        print(f"\n{name} failed:\n{problem}")
    print(f"{tried - len(failures)} passed, {len(failures)} failed")
    return 1 if failures else 0


def try_page(page: Path, without: Sequence[str] = ()) -> Generator[tuple[str, str]]:
    """Yield the name of each pasted block and its problem, empty if there is none; `without` names missing programs."""
    blocks = list_blocks(page)
    if not any(is_pasted(block) for block in blocks):
        return
    with tempfile.TemporaryDirectory(prefix="guide-") as name:
        home = Path(name)
        make_clone(home / "clone")
        link_programs(home / "programs", without)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")}
        environment |= {"PATH": str(home / "programs"), "HOME": name}
        folder = home / "mill" if MILL in page.read_text() else home / "clone"
        window = Window(home / "clone", environment)
        try:
            for number, block in enumerate(blocks, start=1):
                if block.use == "window":
                    window.paste(block.text)
                elif block.use.startswith("file ") or is_pasted(block):
                    if not window.is_open:
                        window.paste(find_window(page))
                    if is_pasted(block):
                        after = blocks[number] if number < len(blocks) else Block("", "", "")
                        output = after.text if after.use == "output" else ""
                        yield f"{page.stem} {number}", paste(block, output, folder, environment)
                    else:
                        save(block, folder)
        finally:
            window.close()


def find_window(page: Path) -> str:
    """Return what runs in the first window if the page does not say it: a page that it names does, or `make up`."""
    text = page.read_text()
    named = "first-agent.md" if MILL in text else next(iter(NAMED_WINDOW.findall(text)), "")
    blocks = list_blocks(GUIDES / named) if named else []
    return next((block.text for block in blocks if block.use == "window"), UP)


def save(block: Block, folder: Path) -> None:
    path = folder / block.use.removeprefix("file ")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(block.text)
    time.sleep(SAVED_S)


def is_pasted(block: Block) -> bool:
    return block.form in COMMANDS and block.use in (("", "run") if block.form == "sh" else ("run",))


def paste(block: Block, output: str, folder: Path, environment: Mapping[str, str]) -> str:
    """Run a block as a reader who pastes it would; return its problem, empty if there is none."""
    process = subprocess.Popen(
        ["bash", "-ec", f"{SHELL}\n{COMMANDS[block.form] or block.text}"],
        cwd=folder,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        text=True,
    )
    try:
        printed, _ = process.communicate(block.text if COMMANDS[block.form] else "", timeout=BLOCK_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return f"{process.communicate()[0]}\nit has not ended in {BLOCK_S:g} s"
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


def link_programs(folder: Path, without: Sequence[str]) -> None:
    """Create a folder of all programs except some, with precedence for the virtual environment's."""
    folder.mkdir()
    for place in (str(Path(sys.executable).parent), *os.environ["PATH"].split(os.pathsep)):
        for program in Path(place).glob("*") if Path(place).is_dir() else ():
            link = folder / program.name
            if program.name not in without and not link.is_symlink():
                link.symlink_to(program)
    # A linked Python does not find its virtual environment, so scripts replace these links.
    for name in ("python", "python3"):
        (folder / name).unlink(missing_ok=True)
        (folder / name).write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        (folder / name).chmod(0o755)


class Window:
    """A reader's first window, in which the suite runs."""

    def __init__(self, clone: Path, environment: Mapping[str, str]) -> None:
        self._clone, self._environment = clone, environment
        self._suite: subprocess.Popen[bytes] | None = None

    @property
    def is_open(self) -> bool:
        return self._suite is not None

    def paste(self, text: str) -> None:
        """Stop what runs, paste, and wait until the suite is ready."""
        self.close()
        log = self._clone / "window.log"
        with log.open("w") as output:
            self._suite = subprocess.Popen(
                ["bash", "-ec", text],
                cwd=self._clone,
                env=self._environment,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        deadline = time.monotonic() + READY_S
        while "ready:" not in log.read_text():
            if self._suite.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"the suite did not start:\n{log.read_text()}")
            time.sleep(0.1)

    def close(self) -> None:
        if self._suite is not None:
            os.killpg(self._suite.pid, signal.SIGTERM)
            self._suite.wait()
            self._suite = None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
