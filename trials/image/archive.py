"""`python -m trials.image.archive FOLDER`: the image of this checkout in FOLDER, as an archive of OCI,
and its digest in a file beside it, for who publishes it."""

from __future__ import annotations

import platform
import sys
import tomllib
from pathlib import Path

from tests.deploy.manifests import ROOT
from trials.image.build import build_image
from trials.image.programs import run_buildah, unmount_storage


def write_archive(folder: Path) -> Path:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    file = folder / f"headrace-image-{version}-{platform.machine()}.oci.tar"
    digest = ("--digestfile", str(file.with_suffix(".digest")))
    run_buildah("push", "--quiet", *digest, build_image(), f"oci-archive:{file}:headrace:{version}")
    unmount_storage()
    return file


if __name__ == "__main__":
    write_archive(Path(sys.argv[1]).resolve())
