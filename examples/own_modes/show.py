"""Show one of the modes of this folder on a simulated model: triage, digest or debate."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).parent

QUESTIONS = {
    "triage": "The mill has stopped, and smells of smoke.",
    "digest": "Water mills stand in valleys.\n---\nWindmills stand on hills.\n---\nSteam mills stand anywhere.",
    "debate": "Shall we buy a second millstone?",
}


def main(name: str, question: str) -> int:
    headrace = [sys.executable, "-m", "headrace.cli"]
    simulate = [*headrace, "simulate", "--port", "0", "--script", str(FOLDER / "script.json")]
    with (
        tempfile.TemporaryDirectory(prefix="headrace-modes-") as data,
        subprocess.Popen(simulate, stdout=subprocess.PIPE, text=True) as simulator,
    ):
        assert simulator.stdout is not None
        address = simulator.stdout.readline().strip()
        up = [*headrace, "up", "--config-dir", str(FOLDER), "--data-dir", data, "--port", "0", "--grpc-port", "0"]
        asked = [*up, "--agent", name, "--ask", question]
        try:
            return subprocess.run(asked, env=os.environ | {"SIMULATOR_URL": address}, check=False).returncode
        finally:
            simulator.terminate()


if __name__ == "__main__":
    if sys.argv[1:2] == [] or sys.argv[1] not in QUESTIONS:
        sys.exit(f"usage: show.py {' | '.join(QUESTIONS)} [QUESTION]")
    sys.exit(main(sys.argv[1], " ".join(sys.argv[2:]) or QUESTIONS[sys.argv[1]]))
