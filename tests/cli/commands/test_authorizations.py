"""Authorizations of MCP servers from the command line: listed, taken back."""

import re
from pathlib import Path

from tests.support.command_line import run
from tests.support.facade.authorizations import make_authorization
from tests.support.facade.scripted import suite


async def test_authorizations_are_listed_and_taken_back(tmp_path: Path) -> None:
    async with suite(tmp_path) as facade:
        facade.tools.authorizations = [
            make_authorization("mail", expires_at=1_700_000_100_000, renewable=True),
            make_authorization("notes", expires_at=1_700_000_100_000, in_use=False),
        ]
        code, out, _ = await run("authorizations", "list", url=facade.url)
        _, mail, _ = await run("authorizations", "revoke", "mail", url=facade.url)
        _, notes, _ = await run("authorizations", "revoke", "notes", url=facade.url)
        missing, _, complaint = await run("authorizations", "revoke", "mail", url=facade.url)
        _, nothing, _ = await run("authorizations", "list", url=facade.url)
    assert code == 0
    head, first, second = (re.split(r"  +", line) for line in out.decode().splitlines())
    assert head == ["server", "authorized", "issuer", "expires", "renewable", "in use"]
    assert (first[0], first[2], first[4:]) == ("mail", "https://login.example/", ["yes", "yes"])
    assert second[1].startswith("2023-11-1")
    assert second[3].startswith("2023-11-1")
    assert (second[0], second[4:]) == ("notes", ["-", "-"])
    assert mail == b"revoked\n"
    assert notes.startswith(b"revoked here; ")
    assert (missing, nothing.split()[:2]) == (1, [b"server", b"authorized"])
    assert b"have not authorized" in complaint
