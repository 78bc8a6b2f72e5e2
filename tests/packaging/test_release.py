"""A release sets its version everywhere, or names what is missing before it changes anything."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]

COPIED = (
    *("pyproject.toml", "CHANGELOG.md", "packaging", "docs/operating/install.md"),
    *("deploy/Dockerfile", "deploy/helm/headrace/Chart.yaml"),
)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with the files that a release changes, and one change to release."""
    tracked = subprocess.check_output(["git", "ls-files", "-z", *COPIED], cwd=ROOT, text=True).split("\0")
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


def test_a_release_sets_its_version_in_every_file(checkout: Path) -> None:
    process = release(checkout, "7.8.9")
    assert (process.returncode, process.stdout) == (0, "- Streams are twice as wide.\n"), process.stderr
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
def test_an_invalid_older_or_tagged_version_is_refused(checkout: Path, version: str, problem: str) -> None:
    git(checkout, "tag", "v7.7.7")
    process = release(checkout, version)
    assert (process.returncode, process.stdout) == (1, "")
    assert process.stderr.startswith(problem)
    assert git(checkout, "status", "--porcelain") == ""


def test_a_release_with_uncommitted_files_is_refused(checkout: Path) -> None:
    (checkout / "packaging" / "more.txt").write_text("more")
    process = release(checkout, "7.8.9")
    assert process.returncode == 1
    assert "packaging/more.txt" in process.stderr


def test_a_release_without_changes_is_refused(checkout: Path) -> None:
    (checkout / "changes" / "wide.md").unlink()
    commit(checkout)
    process = release(checkout, "7.8.9")
    assert (process.returncode, "changes/ is empty" in process.stderr) == (1, True)


def test_a_changelog_section_written_beforehand_is_kept_and_comes_first(
    checkout: Path,
) -> None:
    now = re.findall(r'^version = "(.*)"', (checkout / "pyproject.toml").read_text(), re.M)[0]
    (checkout / "CHANGELOG.md").write_text(f"# Changelog\n\n## {now}\n\nAll is new.\n\n## 0.0.9\n\n- It begins.\n")
    commit(checkout)
    process = release(checkout, now)
    assert (process.returncode, process.stdout) == (0, "All is new.\n\n- Streams are twice as wide.\n"), process.stderr


def test_a_file_whose_version_line_is_not_found_is_named(checkout: Path) -> None:
    chart = checkout / "deploy/helm/headrace/Chart.yaml"
    chart.write_text(chart.read_text().replace("ersion: 0", "ersion = 0"))
    commit(checkout)
    process = release(checkout, "7.8.9")
    assert (process.returncode, "headrace/Chart.yaml has 0 places" in process.stderr) == (1, True)
    assert git(checkout, "status", "--porcelain") == ""
