"""Builds the seccomp filter, a BPF program of pairs "is it this call? then return that".

It lists denials, because commands are complete Linux programs; it covers what Landlock does not.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from errno import EACCES, ENOSYS, EPERM

from services.tools.sandbox.supervisor import kernel
from services.tools.sandbox.supervisor.syscalls import (
    ASKED,
    CLONE,
    DENIED,
    LAST_KNOWN,
    OPENING,
    PRLIMIT64,
    SCHED_SETAFFINITY,
    SECCOMP,
    SETPRIORITY,
    SETTING_MODES,
    SIGNALLING,
    SOCKETPAIR,
    TRUNCATE,
    UTIMENSAT,
    Numbers,
)

LOAD, JUMP_EQUAL, JUMP_GREATER, JUMP_SET, AND, RETURN = 0x20, 0x15, 0x25, 0x45, 0x54, 0x06
ALLOW, KILL_PROCESS, ERRNO, ASK = 0x7FFF0000, 0x80000000, 0x00050000, 0x7FC00000
SET_MODE_FILTER, NEW_LISTENER = 1, 1 << 3

NUMBER_OFFSET, ARCHITECTURE_OFFSET, ARGUMENTS_OFFSET = 0, 4, 16
"""Offsets in struct seccomp_data; we check the low 4 of an argument's 8 bytes (little endian)."""

ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
"""Audit number of a machine, and its column in the table of calls."""

NAMESPACE_FLAGS = 0x7E020000
"""CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET; clone cannot create NEWTIME."""

SET_ID_BITS = 0o6000
MAKES_FILE = 0o20000100
"""O_CREAT, and the bits of O_TMPFILE other than O_DIRECTORY."""

READ_ONLY, ACCESS_MODE, NO_ACCESS, TRUNCATES = 0, 3, 3, 0o1000
"""Flags of open: O_RDONLY, O_ACCMODE, the mode that neither reads nor writes, O_TRUNC."""

IPPROTO_TCP, AF_INET = 6, 2
AF_UNIX, SOCK_STREAM, SOCK_TYPE_MASK = 1, 1, 0xF

Instruction = tuple[int, int, int, int]
"""Code, jump if true, jump if false, and operand."""


class _Filter(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint16), ("jt", ctypes.c_uint8), ("jf", ctypes.c_uint8), ("k", ctypes.c_uint32))


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint16), ("filters", ctypes.POINTER(_Filter)))


def install_filter(untouchable_pids: Iterable[int], *, network: bool, truncates_read: bool) -> int:
    """Install the filter and return the descriptor on which it asks; needs no_new_privs.

    `untouchable_pids` get no signal, which Landlock ensures only from ABI 6; `truncates_read` states that Landlock
    would allow truncating readable files.
    """
    machine = os.uname().machine
    instructions = build_program(machine, untouchable_pids, network=network, truncates_read=truncates_read)
    filters = (_Filter * len(instructions))(*(_Filter(*item) for item in instructions))
    seccomp = SECCOMP[ARCHITECTURES[machine][1]]
    assert seccomp is not None
    return kernel.syscall(seccomp, SET_MODE_FILTER, NEW_LISTENER, ctypes.byref(_Program(len(filters), filters)))


def build_program(
    machine: str, untouchable_pids: Iterable[int], *, network: bool = False, truncates_read: bool = False
) -> list[Instruction]:
    """Return the filter's program. Raises OSError if there is no table for the machine."""
    if machine not in ARCHITECTURES:
        raise OSError(ENOSYS, f"no table of system calls for {machine}")
    audit, column = ARCHITECTURES[machine]
    lines: list[Instruction] = [
        (LOAD, 0, 0, ARCHITECTURE_OFFSET),
        # Another architecture's calls (32-bit ones on x86) have other numbers.
        (JUMP_EQUAL, 1, 0, audit),
        (RETURN, 0, 0, KILL_PROCESS),
        (LOAD, 0, 0, NUMBER_OFFSET),
        (JUMP_GREATER, 0, 1, LAST_KNOWN),
        (RETURN, 0, 0, ERRNO | ENOSYS),
    ]
    for error, calls in DENIED.items():
        for name, numbers in calls.items():
            if network and name == "connect":
                continue
            if network and name == "socket":
                lines += _match_call(numbers, column, _allow_tcp())
            lines += _match_call(numbers, column, [(RETURN, 0, 0, ERRNO | error)])
    for numbers in ASKED.values():
        lines += _match_call(numbers, column, [(RETURN, 0, 0, ASK)])
    asked = [(RETURN, 0, 0, ERRNO | EPERM), (RETURN, 0, 0, ASK)]
    lines += _match_call(CLONE, column, [_load_argument(0), (JUMP_SET, 0, 1, NAMESPACE_FLAGS), *asked])
    lines += _match_call(SOCKETPAIR, column, _allow_unix_streams())
    lines += _match_call(UTIMENSAT, column, _ask_unless_null(1))
    # The limits, processors and priority of other processes of the same user: for oneself (0) only.
    lines += _match_call(PRLIMIT64, column, _allow_zero(0))
    lines += _match_call(SCHED_SETAFFINITY, column, _allow_zero(0))
    lines += _match_call(SETPRIORITY, column, [*_allow_zero(0)[:-1], *_allow_zero(1)])
    if truncates_read:
        lines += _match_call(TRUNCATE, column, [(RETURN, 0, 0, ERRNO | EACCES)])
        for numbers, flags in OPENING.values():
            lines += _match_call(numbers, column, _deny_truncation(flags))
    for numbers, mode, flags in SETTING_MODES.values():
        lines += _match_call(numbers, column, _deny_set_id(mode, flags))
    for numbers in SIGNALLING:
        lines += _match_call(numbers, column, _deny_targets(untouchable_pids))
    return [*lines, (RETURN, 0, 0, ALLOW)]


def _match_call(numbers: Numbers, column: int, then: list[Instruction]) -> list[Instruction]:
    # The call's number stays loaded when `then` is not run, which returns or loads it again.
    number = numbers[column]
    return [] if number is None else [(JUMP_EQUAL, 0, len(then), number), *then]


def _load_argument(index: int) -> Instruction:
    return (LOAD, 0, 0, ARGUMENTS_OFFSET + 8 * index)


def _deny_or_allow(error: int) -> list[Instruction]:
    return [(RETURN, 0, 0, ERRNO | error), (RETURN, 0, 0, ALLOW)]


def _allow_zero(index: int) -> list[Instruction]:
    return [_load_argument(index), (JUMP_EQUAL, 1, 0, 0), *_deny_or_allow(EPERM)]


def _ask_unless_null(index: int) -> list[Instruction]:
    # Without a path (both halves 0) the call is about a file that the command has opened.
    low, high = _load_argument(index), (LOAD, 0, 0, ARGUMENTS_OFFSET + 8 * index + 4)
    return [low, (JUMP_EQUAL, 0, 2, 0), high, (JUMP_EQUAL, 1, 0, 0), (RETURN, 0, 0, ASK), (RETURN, 0, 0, ALLOW)]


def _deny_set_id(mode: int, flags: int | None) -> list[Instruction]:
    # No file may give its owner's rights to other users. The mode counts only if the flags create a file.
    refused = [_load_argument(mode), (JUMP_SET, 0, 1, SET_ID_BITS), *_deny_or_allow(EPERM)]
    return refused if flags is None else [_load_argument(flags), (JUMP_SET, 0, len(refused) - 1, MAKES_FILE), *refused]


def _deny_truncation(flags: int) -> list[Instruction]:
    # Opening a file for writing requires the right to write it.
    return [
        _load_argument(flags),
        (JUMP_SET, 0, 4, TRUNCATES),
        (AND, 0, 0, ACCESS_MODE),
        (JUMP_EQUAL, 1, 0, READ_ONLY),
        (JUMP_EQUAL, 0, 1, NO_ACCESS),
        (RETURN, 0, 0, ERRNO | EACCES),
        (LOAD, 0, 0, NUMBER_OFFSET),
    ]


def _allow_tcp() -> list[Instruction]:
    # Landlock restricts TCP, over IPv4 and by its own protocol numbers, to the proxy's port.
    return [
        _load_argument(0),
        (JUMP_EQUAL, 0, 5, AF_INET),
        _load_argument(1),
        (AND, 0, 0, SOCK_TYPE_MASK),
        (JUMP_EQUAL, 0, 2, SOCK_STREAM),
        _load_argument(2),
        (JUMP_SET, 0, 1, ~IPPROTO_TCP & 0xFFFFFFFF),
        *_deny_or_allow(EACCES),
    ]


def _allow_unix_streams() -> list[Instruction]:
    # A pair of datagram sockets could be pointed at any socket in the file system, such as /dev/log.
    return [
        _load_argument(0),
        (JUMP_EQUAL, 0, 3, AF_UNIX),
        _load_argument(1),
        (AND, 0, 0, SOCK_TYPE_MASK),
        (JUMP_EQUAL, 1, 0, SOCK_STREAM),
        *_deny_or_allow(EACCES),
    ]


def _deny_targets(pids: Iterable[int]) -> list[Instruction]:
    # Pid -1 is everyone, and denied too.
    targets = [0xFFFFFFFF, *pids]
    jumps = [(JUMP_EQUAL, len(targets) - 1 - index, 0, pid) for index, pid in enumerate(targets)]
    jumps[-1] = (JUMP_EQUAL, 0, 1, targets[-1])
    return [_load_argument(0), *jumps, *_deny_or_allow(EPERM)]
