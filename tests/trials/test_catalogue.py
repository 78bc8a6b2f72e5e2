"""Every make target, trial and test that a page, a comment or a trial names exists."""

import re
import subprocess
import sys
from pathlib import Path

from tests.quick import SMOKE
from trials.other_python import TESTS
from trials.support.catalogue import find_trials
from trials.transports import PASSES

ROOT = Path(__file__).parents[2]

TEXTS = (".py", ".md", ".go", ".proto", ".yaml", ".txt", ".toml", ".mk", "")
MAKE = re.compile(r"(?:`|^|\| )make ([a-z][a-z-]*(?:/[\w./-]+)?)", re.MULTILINE)
TRIAL = re.compile(r"python -m trials ([a-z][a-z0-9-]*)")


def read_texts() -> dict[str, str]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    files = [name for name in listed if Path(name).suffix in TEXTS and (ROOT / name).is_file()]
    return {name: (ROOT / name).read_text(errors="replace") for name in files}


def test_make_creates_the_build_folder_in_a_fresh_clone(tmp_path: Path) -> None:
    """The guide for TypeScript starts with `make build/clients/headrace/done`, and a clone has no `build`."""
    openapi = tmp_path / "build" / "openapi.json"
    command = [
        "make",
        "--silent",
        "--old-file=.venv/dev",
        f"BIN={Path(sys.executable).parent}",
        f"OPENAPI={openapi}",
        str(openapi),
    ]
    subprocess.run(command, cwd=ROOT, check=True)
    assert openapi.stat().st_size


def test_every_named_make_target_and_trial_exists() -> None:
    makefiles = "".join((ROOT / name).read_text() for name in ("Makefile", "tests/clients/environments.mk"))
    targets = {*re.findall(r"^([a-z-]+):", makefiles, re.MULTILINE), "build/gateway", "build/image.binpb"}
    patterns = re.compile(r"build/clients/\w+/done")
    trials = find_trials()
    unknown: set[str] = set()
    for file, text in read_texts().items():
        unknown |= {
            f"{file}: make {item}" for item in MAKE.findall(text) if item not in targets and not patterns.match(item)
        }
        unknown |= {f"{file}: python -m trials {item}" for item in TRIAL.findall(text) if item not in trials}
    assert sorted(unknown) == []


def test_a_trial_declares_whether_it_runs_nightly() -> None:
    trials = find_trials()
    assert trials["simulate"].nightly == ["tonight"]
    assert trials["advisories"].nightly == []
    assert trials["soak"].nightly is None


def test_each_trial_has_a_one_line_description() -> None:
    assert {name for name, trial in find_trials().items() if not 20 < len(trial.line) <= 120} == set()


def test_the_tests_named_by_trials_exist() -> None:
    named = [*TESTS, *SMOKE, *(name for _, tests in PASSES.values() for name in tests)]
    missing: list[str] = []
    for name in (name.removeprefix("--ignore=") for name in named):
        file, _, test = name.partition("::")
        path = ROOT / file
        if not path.exists() or (test and f"def {test.partition('[')[0]}(" not in path.read_text()):
            missing.append(name)
    assert missing == []
