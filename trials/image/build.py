"""Builds the unchanged deploy/Dockerfile without a registry, on replacements of its base images made from
Debian packages.

Base images that are already in the storage are used. pip, apt and Go are reached as on this machine, and none
of that configuration gets into the image.
"""

import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

from tests.deploy.manifests import ROOT
from trials.image.programs import STORAGE, run_buildah, run_podman

DOCKERFILE = "deploy/Dockerfile"

CA_BUNDLE = "/etc/ssl/certs/ca-certificates.crt"
"""Path at which Debian's packages look for it."""


def build_image(checkout: Path = ROOT, tag: str = "localhost/headrace:check") -> str:
    """Build the image and return its name; unchanged steps are cached."""
    make_bases(checkout)
    base, _ = base_images(checkout)
    git = ["git", "-C", str(checkout), "rev-parse", "HEAD"]
    revision = subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()
    digest = run_podman("image", "inspect", "--format", "{{.Digest}}", base).strip()
    build_from(checkout / DOCKERFILE, checkout, tag, REVISION=revision, BASE_DIGEST=digest)
    return tag


def build_from(file: Path, context: Path, tag: str, **arguments: str) -> None:
    """Build an image on the base images, which must be in the storage already."""
    volumes = [option for volume in (*_registries(), *_go()) for option in ("--volume", volume)]
    # chroot and the host's network: a build needs no more of a container than its root.
    isolation = ("--isolation", "chroot", "--network", "host", "--pull-never", "--layers")
    given = [option for name, value in arguments.items() for option in ("--build-arg", f"{name}={value}")]
    run_buildah("bud", *isolation, *volumes, *given, "--file", str(file), "--tag", tag, str(context))


def base_images(checkout: Path) -> tuple[str, str]:
    """Return the names of the Python and Go images in the Dockerfile."""
    named = re.findall(r"^FROM (\S+)", (checkout / DOCKERFILE).read_text(), re.M)
    (python,) = {item for item in named if item.startswith("python:")}
    (go,) = {item for item in named if item.startswith("golang:")}
    return f"docker.io/library/{python}", f"docker.io/library/{go}"


def make_bases(checkout: Path) -> None:
    python, go = base_images(checkout)
    match = re.fullmatch(r".*/python:(3\.\d+)-slim-(\w+)", python)
    assert match, python
    version, suite = match.groups()
    if not _is_there(python):
        working = run_buildah("from", "scratch").strip()
        run_buildah("add", "--quiet", working, str(_make_root(version, suite)), "/")
        _commit(working, python)
    if not _is_there(go):
        # Without the toolchain, which the build mounts: copying and hashing it would take longer than
        # everything else.
        working = run_buildah("from", "--pull-never", python).strip()
        path = "/usr/local/go/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        run_buildah("config", "--env", f"PATH={path}", "--env", "GOTOOLCHAIN=local", working)
        _commit(working, go)


def size_bytes(image: str) -> int:
    return int(run_podman("image", "inspect", "--format", "{{.Size}}", image))


def _is_there(image: str) -> bool:
    return image in run_buildah("images", "--format", "{{.Name}}:{{.Tag}}").split()


def _commit(working: str, image: str) -> None:
    run_buildah("config", "--cmd", '["bash"]', working)
    run_buildah("commit", "--quiet", "--rm", working, image)


def _make_root(version: str, suite: str) -> Path:
    """Create an archive of a Debian with Python at the same path as in the real image."""
    python, bin_ = f"/usr/bin/python{version}", '"$1/usr/local/bin'
    hooks = (
        f'ln -s {python} {bin_}/python"; ln -s {python} {bin_}/python3"',
        'rm -rf "$1/var/lib/apt/lists/"* "$1/usr/share/doc/"* "$1/usr/share/man/"*',
    )
    packages = f"ca-certificates,python{version},python{version}-venv,netbase,tzdata"
    options = ["--quiet", "--variant=minbase", f"--include={packages}", *(f"--customize-hook={item}" for item in hooks)]
    name = hashlib.sha256("\n".join(options).encode()).hexdigest()[:12]
    archive = STORAGE / f"{suite}-{name}.tar"
    if not archive.exists():
        STORAGE.mkdir(parents=True, exist_ok=True)
        half = archive.with_suffix(".half.tar")
        command = ["mmdebstrap", *options, suite, str(half), *_debian_sources(suite)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-4000:]
        half.rename(archive)
    return archive


def _debian_sources(suite: str) -> list[str]:
    """Return the package sources of the suite: those of this machine, or another release at the same address."""
    targets = ["apt-get", "indextargets", "--format", "$(RELEASE) $(REPO_URI)", "Created-By: Packages"]
    lines = subprocess.run(targets, capture_output=True, text=True, check=True).stdout.splitlines()
    assert lines, "apt has no lists here: apt-get update"
    found = dict(line.split() for line in reversed(lines))
    wanted = [item for item in (suite, f"{suite}-updates", f"{suite}-security") if item in found]
    return [f"deb {found[item]} {item} main" for item in wanted] or [f"deb {lines[0].split()[1]} {suite} main"]


def _registries() -> list[str]:
    """Return volumes with this machine's pip configuration: certificate authority and index."""
    settings = {key: _pip_setting(key) for key in ("cert", "index-url")}
    file = STORAGE / "pip.conf"
    bundle = settings["cert"] or os.environ.get("SSL_CERT_FILE", "")
    if bundle:
        settings["cert"] = CA_BUNDLE
    file.write_text("\n".join(["[global]", *(f"{key} = {value}" for key, value in settings.items() if value), ""]))
    return [f"{file}:/etc/pip.conf:ro", *([f"{bundle}:{CA_BUNDLE}:ro"] if bundle else [])]


def _pip_setting(key: str) -> str:
    command = [sys.executable, "-m", "pip", "config", "get", f"global.{key}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return os.environ.get(f"PIP_{key.upper().replace('-', '_')}", "") or done.stdout.strip()


def _go() -> list[str]:
    """Return volumes with this machine's Go toolchain and caches."""
    command = ["go", "env", "GOROOT", "GOCACHE", "GOMODCACHE"]
    root, built, modules = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return [f"{root}:/usr/local/go:ro", f"{built}:/root/.cache/go-build", f"{modules}:/root/go/pkg/mod"]
