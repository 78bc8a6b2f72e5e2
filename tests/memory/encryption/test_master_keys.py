"""Master keys that wrap data keys: a file, real commands, a Python object; and the keyring over a folder of data
keys."""

import asyncio
import base64
import os
import threading
from pathlib import Path

import pytest

from headrace.errors import KeyUnavailable, Overloaded
from services.memory.config import Config
from services.memory.encryption import keyring
from services.memory.encryption.envelope import WrongCiphertext, find_key_id
from services.memory.encryption.keyring import Keyring
from services.memory.encryption.master_keys import (
    CommandMasterKeys,
    FileMasterKeys,
    PythonMasterKeys,
    make_open_keys,
    open_master_keys,
)
from services.memory.storage.files.data_keys import FileDataKeys
from services.runtime.ending import CannotServe

KEY = b"d" * 32
ONE, TWO = base64.b64encode(b"1" * 32).decode(), base64.b64encode(b"2" * 32).decode()

REVERSING = """#!/bin/sh
# "wraps" by reversing, and says for whom
echo "$1 $2" >> "$0.calls"
if [ -e "$0.exit" ]; then exit "$(cat "$0.exit")"; fi
if [ -e "$0.wait" ]; then sleep 30; fi
base64 -d | rev | base64 -w0
"""


@pytest.fixture
def command(tmp_path: Path) -> Path:
    path = tmp_path / "kms"
    path.write_text(REVERSING)
    path.chmod(0o755)
    return path


class ReversingKeys:
    """A plug-in of an operator."""

    def __init__(self) -> None:
        self.fails: type[Exception] | None = None

    def wrap(self, tenant: str, key: bytes) -> bytes:
        return tenant.encode() + key[::-1]

    def unwrap(self, tenant: str, wrapped: bytes) -> bytes:
        if self.fails is not None:
            raise self.fails("a secret of the plug-in's")
        return wrapped.removeprefix(tenant.encode())[::-1]


def test_the_first_key_of_a_file_wraps_and_all_unwrap(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text(f"# of 2026\nold:{ONE}\n")
    wrapped = open_master_keys(f"file:{path}").wrap("acme", KEY)
    path.write_text(f"new:{TWO}\nold:{ONE}\n")
    both = open_master_keys(f"file:{path}")
    assert both.unwrap("acme", wrapped) == KEY
    assert both.wrap("acme", KEY).startswith(b"new:")
    with pytest.raises(KeyUnavailable):
        both.unwrap("bolt", wrapped)
    path.write_text(f"new:{TWO}\n")
    with pytest.raises(KeyUnavailable, match="no key 'old'"):
        open_master_keys(f"file:{path}").unwrap("acme", wrapped)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "there is no key"),
        (f"{ONE}\n", "line 1: expected NAME:KEY"),
        ("a:c2hvcnQ=\n", "line 1: expected NAME:KEY"),
        (f"a:{ONE}\na:{TWO}\n", "line 2: key 'a' is there twice"),
        (f"a b:{ONE}\n", "line 1: expected NAME:KEY"),
    ],
)
def test_a_file_without_valid_keys_is_rejected_at_start(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "keys"
    path.write_text(text)
    with pytest.raises(CannotServe, match=problem):
        make_open_keys(f"file:{path}", encrypts=True)(FileDataKeys(tmp_path / "data"))


def test_invalid_settings_are_rejected_naming_what_is_expected() -> None:
    with pytest.raises(ValueError, match="HEADRACE_MEMORY_ENCRYPTION_KEYS: expected one of file:, command:, python:"):
        Config(encryption_keys="/run/secrets/keys")
    for source in ("file:/nowhere/keys", "python:nowhere:keys", "python:os:path", "command:"):
        with pytest.raises(OSError, match=r"\w"):
            open_master_keys(source)


def test_a_command_gets_the_tenant_as_an_argument(command: Path) -> None:
    masters = CommandMasterKeys([str(command)])
    wrapped = masters.wrap("acme", b"0123456789abcdef0123456789abcde\n")
    assert masters.unwrap("acme", wrapped)
    assert Path(f"{command}.calls").read_text() == "wrap acme\nunwrap acme\n"


def test_the_exit_status_of_a_command_decides_whether_to_retry(command: Path) -> None:
    masters = CommandMasterKeys([str(command)], timeout_s=0.2)
    Path(f"{command}.exit").write_text(str(os.EX_TEMPFAIL))
    with pytest.raises(Overloaded, match="cannot unwrap a key now"):
        masters.unwrap("acme", b"x")
    Path(f"{command}.exit").write_text("1")
    with pytest.raises(KeyUnavailable, match="does not unwrap the key: it ended with 1"):
        masters.unwrap("acme", b"x")
    Path(f"{command}.exit").unlink()
    Path(f"{command}.wait").touch()
    with pytest.raises(Overloaded, match=r"in 0\.2 s"):
        masters.unwrap("acme", b"x")
    with pytest.raises(Overloaded, match="cannot be run"):
        CommandMasterKeys(["/nowhere/kms"]).wrap("acme", b"x")


def test_a_plugin_is_an_object_with_wrap_and_unwrap() -> None:
    masters = open_master_keys(f"python:{__name__}:ReversingKeys")
    assert masters.unwrap("acme", masters.wrap("acme", KEY)) == KEY


@pytest.mark.parametrize(
    ("error", "expected"), [(KeyError, KeyUnavailable), (ValueError, KeyUnavailable), (ConnectionError, Overloaded)]
)
def test_an_error_of_a_plugin_is_translated_without_its_text(error: type[Exception], expected: type[Exception]) -> None:
    plugin = ReversingKeys()
    plugin.fails = error
    with pytest.raises(expected) as caught:
        PythonMasterKeys(plugin, "kms:keys").unwrap("acme", b"x")
    assert "secret" not in str(caught.value)


class GatedKeys(ReversingKeys):
    """Blocks for one tenant until `go_on` is set."""

    def __init__(self, slow: str) -> None:
        super().__init__()
        self.slow, self.go_on, self.calls = slow, threading.Event(), 0

    def unwrap(self, tenant: str, wrapped: bytes) -> bytes:
        self.calls += 1
        if tenant == self.slow:
            self.go_on.wait(10)
        return super().unwrap(tenant, wrapped)


def test_keyrings_that_race_for_the_first_key_make_only_one(tmp_path: Path) -> None:
    """Keyrings over one folder make a tenant's key at the same time."""
    rings = [Keyring(ReversingKeys(), FileDataKeys(tmp_path / "keys")) for _ in range(6)]
    ciphertexts: list[bytes] = []

    def encrypt(ring: Keyring) -> None:
        ciphertexts.append(ring.encrypt("acme", b"c", b"x"))

    threads = [threading.Thread(target=encrypt, args=(ring,)) for ring in rings]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [key.version for key in FileDataKeys(tmp_path / "keys").list_all()] == [1]
    for ring in rings:
        assert {ring.decrypt(b"c", data) for data in ciphertexts} == {b"x"}


def test_a_ciphertext_decrypts_only_in_its_own_context(tmp_path: Path) -> None:
    ring = Keyring(FileMasterKeys({"a": KEY}), FileDataKeys(tmp_path / "keys"))
    data = ring.encrypt("acme", b"here", b"text")
    assert ring.decrypt(b"here", data) == b"text"
    for context, wrong in ((b"there", data), (b"here", data[:-1]), (b"here", data[:30]), (b"here", data + b"x")):
        with pytest.raises(WrongCiphertext):
            ring.decrypt(context, wrong)
    assert ring.encrypt("acme", b"here", b"text") != data


def test_a_new_key_that_cannot_be_unwrapped_is_not_used_for_writing_yet(tmp_path: Path) -> None:
    """The other process wrapped it with a master key that this one does not have."""
    stored = tmp_path / "keys"
    ring = Keyring(FileMasterKeys({"a": KEY}), FileDataKeys(stored))
    other = Keyring(FileMasterKeys({"b": b"b" * 32, "a": KEY}), FileDataKeys(stored))
    before = ring.encrypt("acme", b"c", b"before")
    other.refresh()
    other.rotate("acme")
    ring.refresh()
    after = ring.encrypt("acme", b"c", b"after")
    assert find_key_id(after) == find_key_id(before)
    assert other.decrypt(b"c", after) == b"after"


async def test_waiting_for_a_silent_key_service_does_not_delay_other_tenants(tmp_path: Path) -> None:
    first = Keyring(ReversingKeys(), FileDataKeys(tmp_path / "keys"))
    for tenant in ("slow", "quick"):
        first.encrypt(tenant, b"c", b"x")
    keeper = GatedKeys("slow")
    ring = Keyring(keeper, FileDataKeys(tmp_path / "keys"))
    waiting = asyncio.gather(*(ring.prepare("slow") for _ in range(20)))
    async with asyncio.timeout(5):
        while not keeper.calls:
            await asyncio.sleep(0.01)
        assert not ring.is_ready("quick")
        await asyncio.to_thread(ring.prepare_now, "quick")
    keeper.go_on.set()
    await waiting
    assert keeper.calls == 2, "one answer serves all who wait"


def test_a_refused_key_is_not_requested_again_at_once(tmp_path: Path) -> None:
    Keyring(ReversingKeys(), FileDataKeys(tmp_path / "keys")).encrypt("acme", b"c", b"x")
    keeper = GatedKeys("nobody")
    keeper.fails = KeyError
    ring = Keyring(PythonMasterKeys(keeper, "kms:keys"), FileDataKeys(tmp_path / "keys"))
    for _ in range(50):
        with pytest.raises(KeyUnavailable, match="the data of tenant 'acme' cannot be read"):
            ring.prepare_now("acme")
    assert keeper.calls == 1
    assert keyring.RETRY_S < 60


def test_encrypted_data_without_keys_is_not_served(tmp_path: Path) -> None:
    """A service that lost its setting would refuse every chat, and write plain text next to them."""
    stored = FileDataKeys(tmp_path / "keys")
    Keyring(ReversingKeys(), stored).encrypt("acme", b"c", b"x")
    with pytest.raises(CannotServe, match="HEADRACE_MEMORY_ENCRYPTION_KEYS"):
        make_open_keys("", encrypts=True)(FileDataKeys(tmp_path / "keys"))
