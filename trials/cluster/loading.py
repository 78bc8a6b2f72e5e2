"""Load on the facade's Service, from inside the cluster's network, while the pods are disturbed."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.deploy.manifests import ROOT
from trials.cluster.installs import Install
from trials.cluster.kube import FOLDER, HERE

BEGIN_S, END_S = 10.0, 15.0
"""Duration of the load before and after the block, for undisturbed and later streams."""

ENDING_S = 600.0


@dataclass(slots=True)
class Seen:
    """Results; filled in when the block is left."""

    ends: dict[str, int] = field(default_factory=dict[str, int])
    refused: dict[str, int] = field(default_factory=dict[str, int])
    attaches: dict[int, int] = field(default_factory=dict[int, int])
    problems: list[str] = field(default_factory=list[str])

    def read(self, counts: dict[str, Any]) -> None:
        self.ends, self.refused = counts["ends"], counts["refused"]
        self.attaches = {int(times): streams for times, streams in counts["attaches"].items()}
        self.problems = counts["problems"]


@contextmanager
def asking(install: Install, streams: int, agent: str = "assistant") -> Generator[Seen]:
    """Keep `streams` streams active while the block runs."""
    command = [HERE / "cluster", "enter", sys.executable, "-m", "trials.cluster.load"]
    process = subprocess.Popen(
        [*command, install.facade_url(), str(streams), str(install.key_file), agent],
        # By name, because a process starts at the root of another mount namespace.
        env=os.environ | {"CLUSTER": str(FOLDER), "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    seen = Seen()
    try:
        time.sleep(BEGIN_S)
        yield seen
        time.sleep(END_S)
        output, _ = process.communicate("", timeout=ENDING_S)
        seen.read(json.loads(output))
        sys.stdout.write(f"{output}\n")  # shown by pytest -s
    finally:
        process.kill()
        process.wait()
