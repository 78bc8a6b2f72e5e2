"""Opens the keyring that the settings name.

Master keys wrap its data keys; they are in a file, or accessed through a command or a Python object. Everything blocks.
"""

from __future__ import annotations

import base64
import importlib
import os
import shlex
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from headrace.errors import KeyUnavailable, Overloaded
from services.memory.encryption.data_keys import PLAIN
from services.memory.encryption.keyring import NO_KEYS, Keyring
from services.runtime.ending import CannotServe

if TYPE_CHECKING:
    from services.memory.encryption.data_keys import DataKeys

KINDS = ("file:", "command:", "python:")
"""Prefixes of the setting of master keys."""

OpenKeys: TypeAlias = "Callable[[DataKeys], Keyring]"
"""Creates the keyring of an engine, given its data keys. Blocks."""


def open_no_keys(stored: DataKeys) -> Keyring:
    return NO_KEYS


def make_open_keys(source: str, *, encrypts: bool, is_strict: bool = False) -> OpenKeys:
    """Return the function that opens the keyring for these settings; without a source nothing is encrypted."""
    return partial(_open_keys, source, encrypts=encrypts, is_strict=is_strict)


def _open_keys(source: str, stored: DataKeys, *, encrypts: bool, is_strict: bool) -> Keyring:
    """Open the keyring. Raises CannotServe if the master keys are unusable or missing."""
    if not source:
        if stored.list_all() and stored.read_goal() != PLAIN:
            raise CannotServe(
                "what is stored is encrypted, and HEADRACE_MEMORY_ENCRYPTION_KEYS does not say with what; to decrypt"
                " it, have the keys and HEADRACE_MEMORY_ENCRYPTION_ENABLED=false"
            )
        if stored.read_goal():
            stored.write_goal(PLAIN)
        return NO_KEYS
    # Imported only here: a service without encryption does not need it.
    from services.memory.encryption.master_keys import open_master_keys

    try:
        keys = Keyring(open_master_keys(source), stored, encrypts=encrypts, is_strict=is_strict)
    except OSError as error:
        raise CannotServe(f"HEADRACE_MEMORY_ENCRYPTION_KEYS: {error}") from error
    keys.refresh()
    return keys


COMMAND_TIMEOUT_S = 5.0
"""Timeout of a command; readers of a chat wait for it."""

OUTPUT_BYTES_MAX = 64 * 1024

TEMPORARY_FAILURE = os.EX_TEMPFAIL
"""Exit status with which a command reports a temporary failure."""

_NONCE_BYTES, _KEY_BYTES = 12, 32


class MasterKeys(Protocol):
    def wrap(self, tenant: str, key: bytes) -> bytes:
        """Wrap the key. Raises KeyUnavailable, or Overloaded if it may succeed later; unwrap raises the same."""
        ...

    def unwrap(self, tenant: str, wrapped: bytes) -> bytes: ...


def open_master_keys(source: str) -> MasterKeys:
    """Open the source of a setting: `file:PATH`, `command:PROGRAM ARGUMENTS` or `python:MODULE:NAME`.

    Raises:
        OSError: It is unusable; the message states why.
    """
    kind, _, rest = source.partition(":")
    match kind:
        case "file":
            return FileMasterKeys(_read_file(Path(rest)))
        case "command":
            return CommandMasterKeys(shlex.split(rest))
        case "python":
            return PythonMasterKeys(_import_object(rest), rest)
        case _:
            raise OSError("expected one of file:, command: or python:")


class FileMasterKeys:
    """AES-256 keys by name: the first one wraps, all unwrap."""

    def __init__(self, keys: dict[str, bytes]) -> None:
        self._first = next(iter(keys))
        self._keys = {name: AESGCM(key) for name, key in keys.items()}

    def wrap(self, tenant: str, key: bytes) -> bytes:
        nonce = os.urandom(_NONCE_BYTES)
        wrapped = self._keys[self._first].encrypt(nonce, key, _make_context(tenant))
        return self._first.encode() + b":" + nonce + wrapped

    def unwrap(self, tenant: str, wrapped: bytes) -> bytes:
        name, _, rest = wrapped.partition(b":")
        master = self._keys.get(name.decode("ascii", "replace"))
        if master is None:
            raise KeyUnavailable(f"the file of master keys has no key {name.decode('ascii', 'replace')!r}")
        try:
            return master.decrypt(rest[:_NONCE_BYTES], rest[_NONCE_BYTES:], _make_context(tenant))
        except (InvalidTag, ValueError) as error:
            raise KeyUnavailable(f"master key {name.decode()!r} is another than the one that wrapped this") from error


class CommandMasterKeys:
    """A program called with its arguments followed by `wrap` or `unwrap` and the tenant; it reads and writes base64."""

    def __init__(self, command: list[str], timeout_s: float = COMMAND_TIMEOUT_S) -> None:
        if not command:
            raise OSError("command: expected a program")
        self._command = command
        self._timeout_s = timeout_s

    def wrap(self, tenant: str, key: bytes) -> bytes:
        return self._run("wrap", tenant, key)

    def unwrap(self, tenant: str, wrapped: bytes) -> bytes:
        return self._run("unwrap", tenant, wrapped)

    def _run(self, verb: str, tenant: str, data: bytes) -> bytes:
        name = self._command[0]
        try:
            ended = subprocess.run(
                [*self._command, verb, tenant],
                input=base64.b64encode(data) + b"\n",
                capture_output=True,
                timeout=self._timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise Overloaded(f"{name} has not {verb}ped a key in {self._timeout_s:g} s; try again later") from error
        except OSError as error:
            raise Overloaded(f"{name} cannot be run: {os.strerror(error.errno or 0)}; try again later") from error
        if ended.returncode == TEMPORARY_FAILURE:
            raise Overloaded(f"{name} cannot {verb} a key now; try again later")
        if ended.returncode:
            raise KeyUnavailable(f"{name} does not {verb} the key: it ended with {ended.returncode}")
        try:
            return base64.b64decode(ended.stdout[:OUTPUT_BYTES_MAX].strip(), validate=True)
        except ValueError as error:
            raise KeyUnavailable(f"{name} did not write base64") from error


class PythonMasterKeys:
    """An operator's object with wrap(tenant, key) and unwrap(tenant, wrapped), both of bytes."""

    def __init__(self, plugin: Any, name: str) -> None:
        self._plugin = plugin
        self._name = name

    def wrap(self, tenant: str, key: bytes) -> bytes:
        return self._call(self._plugin.wrap, tenant, key)

    def unwrap(self, tenant: str, wrapped: bytes) -> bytes:
        return self._call(self._plugin.unwrap, tenant, wrapped)

    def _call(self, do: Any, tenant: str, data: bytes) -> bytes:
        try:
            return bytes(do(tenant, data))
        except (LookupError, ValueError, TypeError) as error:
            raise KeyUnavailable(f"{self._name} refuses the key: {type(error).__name__}") from error
        except OSError as error:  # TimeoutError and ConnectionError too
            raise Overloaded(f"{self._name} cannot be reached: {type(error).__name__}; try again later") from error


def _make_context(tenant: str) -> bytes:
    return b"headrace data key\0" + tenant.encode()


def _read_file(path: Path) -> dict[str, bytes]:
    keys: dict[str, bytes] = {}
    for number, line in enumerate(path.read_text("ascii", "replace").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, separator, text = line.strip().partition(":")
        try:
            key = base64.b64decode(text, validate=True)
        except ValueError:
            key = b""
        if not separator or not name.isidentifier() or len(key) != _KEY_BYTES:
            raise OSError(f"{path}: line {number}: expected NAME:KEY, a word and 32 bytes in base64")
        if name in keys:
            raise OSError(f"{path}: line {number}: key {name!r} is there twice")
        keys[name] = key
    if not keys:
        raise OSError(f"{path}: there is no key")
    return keys


def _import_object(name: str) -> Any:
    module, _, attribute = name.partition(":")
    try:
        plugin = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise OSError(f"python:{name}: {error}") from error
    plugin = plugin() if isinstance(plugin, type) else plugin
    if not callable(getattr(plugin, "wrap", None)) or not callable(getattr(plugin, "unwrap", None)):
        raise OSError(f"python:{name}: has no wrap and unwrap")
    return plugin
