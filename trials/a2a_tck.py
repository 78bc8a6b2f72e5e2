"""Run A2A's compatibility kit against a suite: [FOLDER of its branch 1.0-dev, which is not fetched]."""

from pathlib import Path

from trials.support.commands import ROOT, NotTried, install, run_python

KIT = ROOT / "build" / "a2a-tck"


def main(arguments: list[str]) -> int:
    kit = Path(arguments[0]) if arguments else KIT
    if not (kit / "run_tck.py").exists():
        raise NotTried(f"no compatibility kit at {kit}: clone a2aproject/a2a-tck, branch 1.0-dev, there")
    python = install(str(kit), into=ROOT / "build" / "a2a-tck-env")
    return run_python("tests.clients.a2a_tck", kit, python)
