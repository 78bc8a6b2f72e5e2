"""Other users of this machine and a facade that requires no credentials."""

import os
import shutil
from pathlib import Path

import pytest

from tests.support.facade.scripted import Script, answering, suite
from tests.support.programs import run_to_end

NOBODY = 65534
PYTHON = shutil.which("python3", path="/usr/bin:/bin")
"""An interpreter that other users may run too."""

ASKING = """
import sys, urllib.error, urllib.request
for path in ("/api/agents", "/healthz"):
    try:
        print(urllib.request.urlopen(sys.argv[1] + path).status)
    except urllib.error.HTTPError as error:
        print(error.code)
"""


@pytest.mark.skipif(os.geteuid() != 0 or PYTHON is None, reason="NOTICE: only root starts programs of other users")
async def test_only_the_user_who_runs_a_facade_may_use_it(tmp_path: Path) -> None:
    async with suite(tmp_path, Script(query=answering("x"))) as facade:
        for user, statuses in ((NOBODY, b"403\n200\n"), (0, b"200\n200\n")):
            assert PYTHON is not None
            assert (await run_to_end(PYTHON, "-I", "-c", ASKING, facade.url, user=user))[1] == statuses
