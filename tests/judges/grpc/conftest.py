"""grpc-go's interop client and server as one program, compiled once."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.judges.grpc.interop_service import Contract
from trials.grpc_load.programs import make_judge


@pytest.fixture(scope="session")
def judge() -> Path:
    if shutil.which("go") is None:
        pytest.skip("NOTICE: Go is not installed: grpc-go does not judge our HTTP/2")
    return make_judge()


@pytest.fixture(scope="session")
def contract(judge: Path) -> Contract:
    return Contract(subprocess.run([judge, "messages"], check=True, stdout=subprocess.PIPE).stdout)
