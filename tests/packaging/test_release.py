"""A release gives its version to everything that has one, and says what is missing before it changes anything."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]

TAKEN = (
    *("pyproject.toml", "CHANGELOG.md", "packaging", "docs/operating/install.md"),
    *("deploy/Dockerfile", "deploy/helm/headrace/Chart.yaml"),
)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What a release changes, as a repository of its own, with one change that is to be released."""
    tracked = subprocess.check_output(["git", "ls-files", "-z", *TAKEN], cwd=ROOT, text=True).split("\0")
    for name in filter(None, tracked):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## 0.0.9\n\n- It begins.\n")
    (tmp_path / "changes").mkdir()
    (tmp_path / "changes" / "wide.md").write_text("Streams are twice as wide.\n")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "config", "user.name", "Release")
    git(tmp_path, "config", "user.email", "release@headrace.invalid")
    commit(tmp_path)
    return tmp_path


def git(checkout: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=checkout, check=True, capture_output=True, text=True).stdout


def commit(checkout: Path) -> None:
    git(checkout, "add", "--all")
    git(checkout, "commit", "--quiet", "--message", "as it is")


def release(checkout: Path, version: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "packaging/release.py", version]
    return subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False)


def test_a_release_gives_its_version_to_everything_that_has_one(checkout: Path) -> None:
    done = release(checkout, "7.8.9")
    assert (done.returncode, done.stdout) == (0, "- Streams are twice as wide.\n"), done.stderr
    assert '\nversion = "7.8.9"\n' in (checkout / "pyproject.toml").read_text()
    assert json.loads((checkout / "packaging/typescript/package.json").read_text())["version"] == "7.8.9"
    chart = yaml.safe_load((checkout / "deploy/helm/headrace/Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == ("7.8.9", "7.8.9")
    install = (checkout / "docs/operating/install.md").read_text()
    assert "docker build -t registry.example/headrace:7.8.9 -f" in install
    assert install.count("/headrace, tag: 7.8.9}") == 2
    changelog = (checkout / "CHANGELOG.md").read_text()
    undated = re.sub(r"\(\d{4}-\d\d-\d\d\)", "(today)", changelog)
    assert undated == "# Changelog\n\n## 7.8.9 (today)\n\n- Streams are twice as wide.\n\n## 0.0.9\n\n- It begins.\n"
    changed = git(checkout, "diff", "--numstat").splitlines()
    assert {(line.split()[0], line.split()[2]) for line in changed} == {
        ("4", "CHANGELOG.md"),
        ("0", "changes/wide.md"),
        ("1", "deploy/Dockerfile"),
        ("2", "deploy/helm/headrace/Chart.yaml"),
        ("4", "docs/operating/install.md"),
        ("1", "packaging/typescript/package.json"),
        ("1", "pyproject.toml"),
    }


@pytest.mark.parametrize(
    ("version", "problem"),
    [
        ("7.8", "'7.8' is no version"),
        ("v7.8.9", "'v7.8.9' is no version"),
        ("07.8.9", "'07.8.9' is no version"),
        ("0.0.9", "0.0.9 comes before"),
        ("7.7.7", "the tag v7.7.7 is there already"),
    ],
)
def test_a_version_that_cannot_be_is_refused(checkout: Path, version: str, problem: str) -> None:
    git(checkout, "tag", "v7.7.7")
    done = release(checkout, version)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(problem)
    assert git(checkout, "status", "--porcelain") == ""


def test_what_is_not_committed_is_not_released(checkout: Path) -> None:
    (checkout / "packaging" / "more.txt").write_text("more")
    done = release(checkout, "7.8.9")
    assert done.returncode == 1
    assert "packaging/more.txt" in done.stderr


def test_a_release_that_changes_nothing_for_users_is_none(checkout: Path) -> None:
    (checkout / "changes" / "wide.md").unlink()
    commit(checkout)
    done = release(checkout, "7.8.9")
    assert (done.returncode, "changes/ is empty" in done.stderr) == (1, True)


def test_a_section_that_is_written_beforehand_comes_first_and_the_version_may_be_that_of_the_checkout(
    checkout: Path,
) -> None:
    now = re.findall(r'^version = "(.*)"', (checkout / "pyproject.toml").read_text(), re.M)[0]
    (checkout / "CHANGELOG.md").write_text(f"# Changelog\n\n## {now}\n\nAll is new.\n\n## 0.0.9\n\n- It begins.\n")
    commit(checkout)
    done = release(checkout, now)
    assert (done.returncode, done.stdout) == (0, "All is new.\n\n- Streams are twice as wide.\n"), done.stderr


def test_a_place_that_has_moved_is_named(checkout: Path) -> None:
    chart = checkout / "deploy/helm/headrace/Chart.yaml"
    chart.write_text(chart.read_text().replace("ersion: 0", "ersion = 0"))
    commit(checkout)
    done = release(checkout, "7.8.9")
    assert (done.returncode, "headrace/Chart.yaml has 0 places" in done.stderr) == (1, True)
    assert git(checkout, "status", "--porcelain") == ""
