"""AG-UI's own client as a program."""

import pytest

from tests.support.clients.catalogue import ENVIRONMENTS, ROOT

RESUMING = ROOT / "examples" / "clients" / "ag-ui" / "src" / "resuming_fetch.js"


def get_command(url: str, exercise: str) -> list[str]:
    folder = ENVIRONMENTS / "node"
    if not (folder / "done").exists():
        pytest.skip("build/clients/node is not there: `python -m trials clients` makes it")
    keep_links = ["--preserve-symlinks", "--preserve-symlinks-main"]
    return ["node", *keep_links, str(folder / "programs" / "ag_ui.mjs"), url, str(RESUMING), exercise]
