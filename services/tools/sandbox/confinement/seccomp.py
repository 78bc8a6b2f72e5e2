"""The seccomp filter: a BPF program of pairs "is it this call? then answer that", built by hand.

A list of what is denied rather than of what is allowed: commands are whole Linux programs, and what reaches files,
TCP and other processes is Landlock's already. The filter shuts the doors that Landlock does not know.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from errno import EACCES, ENOSYS, EPERM

from services.tools.sandbox.confinement import kernel
from services.tools.sandbox.confinement.syscalls import (
    ASKED,
    CLONE,
    DENIED,
    LAST_KNOWN,
    PRLIMIT64,
    SCHED_SETAFFINITY,
    SECCOMP,
    SETPRIORITY,
    SETTING_MODES,
    SIGNALLING,
    SOCKETPAIR,
    UTIMENSAT,
    Numbers,
)

LOAD, JUMP_EQUAL, JUMP_GREATER, JUMP_SET, AND, RETURN = 0x20, 0x15, 0x25, 0x45, 0x54, 0x06
ALLOW, KILL_PROCESS, ERRNO, ASK = 0x7FFF0000, 0x80000000, 0x00050000, 0x7FC00000
SET_MODE_FILTER, NEW_LISTENER = 1, 1 << 3

NUMBER_OFFSET, ARCHITECTURE_OFFSET, ARGUMENTS_OFFSET = 0, 4, 16
"""In struct seccomp_data; an argument is 8 bytes, of which we look at the low 4 (little endian)."""

ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
"""Machine: its audit number, and its column of the table of calls."""

NAMESPACE_FLAGS = 0x7E020000
"""CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET; NEWTIME is not clone's to give."""

SET_ID_BITS = 0o6000
MAKES_FILE = 0o20000100
"""O_CREAT, and what O_TMPFILE has beside O_DIRECTORY."""

IPPROTO_TCP, AF_INET = 6, 2
AF_UNIX, SOCK_STREAM, SOCK_TYPE_MASK = 1, 1, 0xF

Instruction = tuple[int, int, int, int]
"""code, jump if true, jump if false, operand."""


class _Filter(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint16), ("jt", ctypes.c_uint8), ("jf", ctypes.c_uint8), ("k", ctypes.c_uint32))


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint16), ("filters", ctypes.POINTER(_Filter)))


def install(untouchable_pids: Iterable[int], *, network: bool) -> int:
    """Filter the calls of this process and its children; needs no_new_privs. Returns the descriptor of what it asks.

    `untouchable_pids` get no signal. Needed where Landlock does not scope signals (before ABI 6): other processes
    of the same user can then still be signalled.
    """
    machine = os.uname().machine
    instructions = program(machine, untouchable_pids, network=network)
    filters = (_Filter * len(instructions))(*(_Filter(*item) for item in instructions))
    seccomp = SECCOMP[ARCHITECTURES[machine][1]]
    assert seccomp is not None
    return kernel.syscall(seccomp, SET_MODE_FILTER, NEW_LISTENER, ctypes.byref(_Program(len(filters), filters)))


def program(machine: str, untouchable_pids: Iterable[int], *, network: bool = False) -> list[Instruction]:
    """The filter for `machine`, with `network` for a command that has one of its own.

    Raises OSError where we have no table for the machine.
    """
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
                lines += _when(numbers, column, _only_tcp())
            lines += _when(numbers, column, [(RETURN, 0, 0, ERRNO | error)])
    for numbers in ASKED.values():
        lines += _when(numbers, column, [(RETURN, 0, 0, ASK)])
    asked = [(RETURN, 0, 0, ERRNO | EPERM), (RETURN, 0, 0, ASK)]
    lines += _when(CLONE, column, [_argument(0), (JUMP_SET, 0, 1, NAMESPACE_FLAGS), *asked])
    lines += _when(SOCKETPAIR, column, _only_unix_streams())
    lines += _when(UTIMENSAT, column, _ask_unless_null(1))
    # The limits, processors and priority of other processes of the same user: for oneself (0) only.
    lines += _when(PRLIMIT64, column, _only_zero(0))
    lines += _when(SCHED_SETAFFINITY, column, _only_zero(0))
    lines += _when(SETPRIORITY, column, [*_only_zero(0)[:-1], *_only_zero(1)])
    for numbers, mode, flags in SETTING_MODES.values():
        lines += _when(numbers, column, _no_set_id(mode, flags))
    for numbers in SIGNALLING:
        lines += _when(numbers, column, _not_to(untouchable_pids))
    return [*lines, (RETURN, 0, 0, ALLOW)]


def _when(numbers: Numbers, column: int, then: list[Instruction]) -> list[Instruction]:
    """Run `then`, which always returns, for one call; else go on with the call's number still loaded."""
    number = numbers[column]
    return [] if number is None else [(JUMP_EQUAL, 0, len(then), number), *then]


def _argument(index: int) -> Instruction:
    return (LOAD, 0, 0, ARGUMENTS_OFFSET + 8 * index)


def _deny_or_allow(error: int) -> list[Instruction]:
    return [(RETURN, 0, 0, ERRNO | error), (RETURN, 0, 0, ALLOW)]


def _only_zero(index: int) -> list[Instruction]:
    return [_argument(index), (JUMP_EQUAL, 1, 0, 0), *_deny_or_allow(EPERM)]


def _ask_unless_null(index: int) -> list[Instruction]:
    """Without a path the call is about a file that the command has opened. Both halves of the address must be 0."""
    low, high = _argument(index), (LOAD, 0, 0, ARGUMENTS_OFFSET + 8 * index + 4)
    return [low, (JUMP_EQUAL, 0, 2, 0), high, (JUMP_EQUAL, 1, 0, 0), (RETURN, 0, 0, ASK), (RETURN, 0, 0, ALLOW)]


def _no_set_id(mode: int, flags: int | None) -> list[Instruction]:
    """No file that gives its owner's rights to whoever runs it; the mode counts only where the flags make a file."""
    refused = [_argument(mode), (JUMP_SET, 0, 1, SET_ID_BITS), *_deny_or_allow(EPERM)]
    return refused if flags is None else [_argument(flags), (JUMP_SET, 0, len(refused) - 1, MAKES_FILE), *refused]


def _only_tcp() -> list[Instruction]:
    """Landlock restricts TCP, over IPv4 and by its own protocol numbers, to the proxy's port."""
    return [
        _argument(0),
        (JUMP_EQUAL, 0, 5, AF_INET),
        _argument(1),
        (AND, 0, 0, SOCK_TYPE_MASK),
        (JUMP_EQUAL, 0, 2, SOCK_STREAM),
        _argument(2),
        (JUMP_SET, 0, 1, ~IPPROTO_TCP & 0xFFFFFFFF),
        *_deny_or_allow(EACCES),
    ]


def _only_unix_streams() -> list[Instruction]:
    """A pair of datagram sockets could be pointed at any socket in the file system, such as /dev/log."""
    return [
        _argument(0),
        (JUMP_EQUAL, 0, 3, AF_UNIX),
        _argument(1),
        (AND, 0, 0, SOCK_TYPE_MASK),
        (JUMP_EQUAL, 1, 0, SOCK_STREAM),
        *_deny_or_allow(EACCES),
    ]


def _not_to(pids: Iterable[int]) -> list[Instruction]:
    """-1, which is everyone, and these get no signal."""
    targets = [0xFFFFFFFF, *pids]
    jumps = [(JUMP_EQUAL, len(targets) - 1 - index, 0, pid) for index, pid in enumerate(targets)]
    jumps[-1] = (JUMP_EQUAL, 0, 1, targets[-1])
    return [_argument(0), *jumps, *_deny_or_allow(EPERM)]
