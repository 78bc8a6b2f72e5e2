"""Whose a chat's workspace, uploads and records are."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from headrace.errors import NotFound
from services.runtime.auth.identity import DEFAULT, Identity, acting_as
from services.tools.workspace.workspace import Workspaces

CHAT = "00000000-0000-4000-8000-000000000001"
ADA, BOB = Identity("acme", "ada"), Identity("acme", "bob")


def test_a_workspace_is_its_first_users(tmp_path: Path) -> None:
    workspaces = Workspaces(tmp_path)
    with acting_as(ADA):
        workspaces.open_workspace(CHAT).write_file("a.txt", b"mine")
    for other in (BOB, Identity("other", "ada"), DEFAULT):
        with acting_as(other):
            with pytest.raises(NotFound, match=f"^chat {CHAT} does not exist$"):
                workspaces.open_workspace(CHAT)
            with pytest.raises(NotFound):
                workspaces.check_owner(CHAT)
            with pytest.raises(FileNotFoundError):
                workspaces.find_workspace(CHAT)
    with acting_as(ADA):
        assert workspaces.find_workspace(CHAT).list_files("", 10)
        Workspaces(tmp_path).check_owner(CHAT)


def test_what_is_from_before_there_were_owners_is_the_default_users(tmp_path: Path) -> None:
    (tmp_path / CHAT).mkdir()
    workspaces = Workspaces(tmp_path)
    with acting_as(ADA), pytest.raises(NotFound):
        workspaces.open_workspace(CHAT)
    workspaces.open_workspace(CHAT)
    workspaces.check_owner(CHAT)


def test_looking_at_what_is_nobodys_claims_nothing(tmp_path: Path) -> None:
    workspaces = Workspaces(tmp_path)
    with acting_as(ADA):
        workspaces.check_owner(CHAT)
        with pytest.raises(FileNotFoundError):
            workspaces.find_workspace(CHAT)
    with acting_as(BOB):
        workspaces.open_workspace(CHAT)


def test_of_two_who_come_at_once_one_has_it(tmp_path: Path) -> None:
    begin, refused = threading.Barrier(8), list[Identity]()

    def come(who: Identity) -> None:
        with acting_as(who):
            begin.wait(10)
            try:
                Workspaces(tmp_path).claim_chat(CHAT)
            except NotFound:
                refused.append(who)

    threads = [threading.Thread(target=come, args=(who,)) for who in (ADA, BOB) * 4]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(refused) == 4
    assert len(set(refused)) == 1
    assert [path.name for path in (tmp_path / ".owners" / CHAT).iterdir()] == ["owner"]
