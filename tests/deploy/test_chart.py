"""The Helm chart is what is made of overlays/prod as it is now; trials/kube/helm holds it against Helm itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import yaml

from tests.deploy.manifests import ROOT, build_manifests, needs_go

pytestmark = needs_go

CHART = ROOT / "deploy" / "helm"


def test_the_chart_is_made_of_the_overlay(tmp_path: Path) -> None:
    make = [sys.executable, str(CHART / "make_chart.py"), str(tmp_path)]
    subprocess.run(make, input=yaml.safe_dump_all(build_manifests("prod")), text=True, check=True)
    made = {path.relative_to(tmp_path): path.read_text() for path in tmp_path.rglob("*.*") if path.is_file()}
    assert len(made) > 8
    kept = {path: (CHART / "headrace" / path).read_text() for path in made}
    assert [str(path) for path in made if made[path] != kept[path]] == [], "run make gen"
