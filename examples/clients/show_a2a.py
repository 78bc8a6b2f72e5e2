"""Show an agent of A2A's official SDK that calls one of our agents, and is called by one of ours.

    .venv/bin/python examples/clients/show_a2a.py [QUESTION]

The SDK is installed at the first time. Our host (REACT) has the stylist (REMOTE) as a sub-agent; the SDK's stylist asks
our assistant for the weather, over A2A.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from suite_process import prepare

EXAMPLES = Path(__file__).parents[1]
PROGRAM = Path(__file__).with_name("a2a") / "stylist.py"
QUESTION = "Ask stylist to say what I shall wear in: Paris; Tokyo"

HOST = {
    "name": "Host",
    "mode": "REACT",
    "modelConfig": {"providerKey": "simulator", "model": "sim-1"},
    "subagents": ["stylist"],
    "react": {"systemPrompt": "Have the stylist say what to wear.", "parallelToolCalls": True},
}


def main(python: str, question: str) -> int:
    ours, theirs = find_port(), find_port()
    stylist = {
        "name": "Stylist",
        "description": "Says what to wear",
        "mode": "REMOTE",
        "remote": {"card": f"http://127.0.0.1:{theirs}/.well-known/agent-card.json"},
    }
    with tempfile.TemporaryDirectory(prefix="headrace-a2a-") as folder:
        config = Path(folder) / "config"
        shutil.copytree(EXAMPLES, config, ignore=shutil.ignore_patterns("clients", "people", "own_modes"))
        for key, agent in {"host": HOST, "stylist": stylist}.items():
            (config / "agents" / f"{key}.json").write_text(json.dumps(agent))
        up = [sys.executable, "-m", "headrace.cli", "up", "--simulate", "--simulate-port", "0", "--port", str(ours)]
        up += ["--grpc-port", "0", "--config-dir", str(config), "--data-dir", f"{folder}/data"]
        card = f"http://127.0.0.1:{ours}/a2a/assistant/.well-known/agent-card.json"
        env = os.environ | {"HEADRACE_ORCHESTRATOR_REMOTE_ALLOW": f"127.0.0.1:{theirs}"}
        with subprocess.Popen([python, str(PROGRAM), str(theirs), card]) as program:
            try:
                return subprocess.run([*up, "--agent", "host", "--ask", question], env=env, check=False).returncode
            finally:
                program.terminate()


def find_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


if __name__ == "__main__":
    sys.exit(main(str(prepare("a2a") / "bin" / "python"), " ".join(sys.argv[1:]) or QUESTION))
