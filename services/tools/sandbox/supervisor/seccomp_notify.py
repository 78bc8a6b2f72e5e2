"""Reads and answers the seccomp filter's notifications (seccomp_unotify(2)).

A call may go on only where all that decides lies in registers, as with fork and clone: the command's memory could
change after we have looked.
"""

from __future__ import annotations

import struct
from contextlib import suppress
from errno import EAGAIN
from fcntl import ioctl

from services.tools.sandbox.supervisor import attributes
from services.tools.sandbox.supervisor.processes import Population

RECEIVE, SEND = 0xC0502100, 0xC0182101
"""SECCOMP_IOCTL_NOTIF_RECV and _SEND."""

NOTICE = struct.Struct("=QIIiIQ6Q")
"""struct seccomp_notif: id, pid, flags, call, architecture, instruction, arguments."""

REPLY = struct.Struct("=QqiI")
"""struct seccomp_notif_resp: id, value, negative error, flags."""

CONTINUE = 1
"""SECCOMP_USER_NOTIF_FLAG_CONTINUE: the kernel does the call."""


def answer_notification(listener: int, writable: tuple[str, ...], population: Population) -> None:
    question = bytearray(NOTICE.size)
    with suppress(OSError):  # the asking process was killed meanwhile
        ioctl(listener, RECEIVE, question)
        number, pid, _, call, _, _, *arguments = NOTICE.unpack(question)
        if call in attributes.CALLS:
            reply = REPLY.pack(number, 0, -attributes.change_attributes(pid, call, arguments, writable), 0)
        elif population.may_grow():
            reply = REPLY.pack(number, 0, 0, CONTINUE)
        else:
            reply = REPLY.pack(number, 0, -EAGAIN, 0)
        ioctl(listener, SEND, reply)
