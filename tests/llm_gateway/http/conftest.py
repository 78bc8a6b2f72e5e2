"""A certificate for the tests of TLS."""

import shutil
import subprocess
from pathlib import Path

import pytest

MAKE = ("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
SUBJECT = ("-subj", "/CN=a provider", "-addext", "subjectAltName=DNS:localhost")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Make a certificate for localhost that is its own authority, and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed: TLS to providers is NOT tested")
    folder = tmp_path_factory.mktemp("tls")
    paths = folder / "tls.crt", folder / "tls.key"
    subprocess.run([*MAKE, *SUBJECT, "-out", paths[0], "-keyout", paths[1]], check=True, capture_output=True)
    return paths
