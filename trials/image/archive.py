"""Writes the image of this checkout to FOLDER, as an OCI archive with its digest: `… trials.image.archive FOLDER`.

Then it loads the archive, as a user would, and runs it.
"""

import platform
import sys
import tomllib
from pathlib import Path

from tests.deploy.manifests import ROOT
from trials.image.build import build_image
from trials.image.programs import run_buildah, run_podman, unmount_storage


def write_archive(folder: Path) -> Path:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    file = folder / f"headrace-image-{version}-{platform.machine()}.oci.tar"
    digest = ("--digestfile", str(file.with_suffix(".digest")))
    run_buildah("push", "--quiet", *digest, build_image(), f"oci-archive:{file}:headrace:{version}")
    return file


def run_archive(file: Path) -> None:
    """Load the archive and run the image's `headrace --help`."""
    loaded = run_podman("load", "--quiet", "--input", str(file))
    run_podman("run", "--rm", "--network", "none", loaded.split()[-1], "headrace", "--help")


if __name__ == "__main__":
    run_archive(write_archive(Path(sys.argv[1]).resolve()))
    unmount_storage()
