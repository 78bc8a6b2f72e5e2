"""The image as its Dockerfile describes it; Docker itself is not used."""

import fnmatch
import re

import pytest
import yaml

from tests.deploy.settings import DEPLOY

ROOT = DEPLOY.parent
INSTRUCTIONS = [
    line.split(maxsplit=1)
    for line in re.sub(r"\\\n", "", (DEPLOY / "Dockerfile").read_text()).splitlines()
    if line and not line.startswith("#")
]
COPIED = [
    source for name, rest in INSTRUCTIONS if name == "COPY" and "--from" not in rest for source in rest.split()[:-1]
]
IGNORED = [line for line in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines() if not line.startswith("#")]


def last_stage() -> list[list[str]]:
    start = max(index for index, (name, _) in enumerate(INSTRUCTIONS) if name == "FROM")
    return INSTRUCTIONS[start:]


def is_sent(path: str) -> bool:
    """Return whether the builder gets the file: the last rule that matches it or one of its folders decides."""
    sent = True
    for rule in IGNORED:
        pattern = rule.removeprefix("!").removeprefix("**/")
        above = [path.rsplit("/", cut)[0] for cut in range(path.count("/") + 1)]
        names = path.split("/") if "**/" in rule else []
        if any(fnmatch.fnmatchcase(path, pattern) for path in (*above, *names)):
            sent = rule.startswith("!")
    return sent


@pytest.mark.parametrize("source", COPIED)
def test_copied_files_exist_and_are_sent_to_the_builder(source: str) -> None:
    assert (ROOT / source).exists()
    assert is_sent(source)


@pytest.mark.parametrize(
    "path", [".git/config", ".env", ".venv/bin/python", ".data/chats/a.json", "services/__pycache__/a.pyc", "build/x"]
)
def test_unneeded_files_are_not_sent_to_the_builder(path: str) -> None:
    assert not is_sent(path)


def test_base_images_have_a_version_and_no_registry() -> None:
    bases = [rest.split()[0] for name, rest in INSTRUCTIONS if name == "FROM"]
    assert [
        base for base in bases if not re.fullmatch(r"[a-z]+:\d+(\.\d+)+[a-z0-9.-]*|golang:\d+\.\d+-\w+", base)
    ] == []
    (of_the_programs, _, of_the_image) = bases
    assert of_the_programs == of_the_image, "the programs are built with the image's Python"


def test_labels_name_version_source_and_base_of_the_image() -> None:
    (labels,) = (rest for name, rest in last_stage() if name == "LABEL")
    named = dict(re.findall(r"org\.opencontainers\.image\.([\w.]+)=(\S+)", labels))
    assert {"version", "revision", "source", "base.name", "base.digest"} <= named.keys()
    base = next(rest for name, rest in last_stage() if name == "FROM")
    assert named["base.name"] == f"docker.io/library/{base}"


def test_the_image_runs_as_a_user_without_rights() -> None:
    assert [rest for name, rest in last_stage() if name == "USER"] == ["10001"]
    assert "useradd --uid 10001" in " ".join(rest for name, rest in last_stage() if name == "RUN")


def test_python_packages_are_installed_by_hash_or_without_dependencies() -> None:
    for name, rest in INSTRUCTIONS:
        if name == "RUN" and "pip install" in rest:
            assert re.search(r"pip install --no-cache-dir (--require-hashes -r|--no-deps) ", rest)


def test_the_image_has_no_secret() -> None:
    given = " ".join(rest for name, rest in INSTRUCTIONS if name in ("ARG", "ENV"))
    assert re.findall(r"KEY|TOKEN|PASSWORD|SECRET", given) == []


def test_containers_write_only_to_tmp_and_data() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    ours = {name: service for name, service in services.items() if service["image"].startswith("headrace")}
    assert len(ours) == 7
    for service in ours.values():
        assert (service["read_only"], service["tmpfs"]) == (True, ["/tmp"])
        assert service.get("volumes", ["data:/data"]) == ["data:/data"]


def test_the_first_process_is_tini_which_forwards_signals() -> None:
    """test_early_stop.py tests the behaviour."""
    assert [rest for name, rest in last_stage() if name == "ENTRYPOINT"] == ['["tini", "--"]']
    assert " tini " in next(rest for name, rest in last_stage() if name == "RUN" and "apt-get" in rest)
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    assert [name for name, service in services.items() if "entrypoint" in service] == []


def test_the_image_declares_no_volume() -> None:
    """A container runtime makes a folder without a limit for each VOLUME, also where the root is read-only."""
    assert [rest for name, rest in INSTRUCTIONS if name == "VOLUME"] == []
