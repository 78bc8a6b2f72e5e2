"""Turns a fork of the supervisor into the confined command: every layer in order, then exec."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import socket
import sys
from errno import ENOENT, ENOSYS
from typing import NoReturn

from services.tools.sandbox.supervisor import kernel, landlock, seccomp
from services.tools.sandbox.supervisor.policy import READY, SHARED_MEMORY, Limits, Policy

SYSTEM = (
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib64",
    # The parts of /etc that programs need to start; deployments keep secrets in others.
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/passwd",
    "/etc/group",
    "/etc/nsswitch.conf",
    "/etc/localtime",
    "/etc/timezone",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/mime.types",
    "/etc/fonts",
    "/etc/gitconfig",
    "/etc/terminfo",
    "/etc/inputrc",
    # Distributions keep their Python's sitecustomize here, and it complains when it cannot be read.
    *(f"/etc/python3.{minor}" for minor in range(8, 20)),
    # Single files of /proc that say something about the machine and nothing about other processes.
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/sys/devices/system/cpu",
)
"""Paths that every command may read and execute."""

DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")

PATH = f"/usr/local/bin:/usr/bin:/bin:{sys.base_prefix}/bin"
"""Our own interpreter comes last, for systems without a python3."""

USER_PROCESSES_MAX = 4096
"""Limit of the user's processes, including the service's own, if the supervisor does not count; the kernel exempts
root."""

NICE = 5
"""Low priority, so that busy commands do not delay streams to people."""

CAPSET = {"x86_64": 126, "aarch64": 91}
CAPABILITY_VERSION_3 = 0x20080522


class _CapabilityHeader(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


def become_command(
    policy: Policy, home: str, port: int | None, untouchable_pids: tuple[int, ...], questions: socket.socket
) -> NoReturn:
    """Confine this process and execute the command. Raises OSError at the layer that does not work.

    `port` is the proxy's, on the loopback device. The descriptor of the filter's notifications is sent over
    `questions`, where the message to begin is awaited.
    """
    supervisor = os.getppid()
    os.setsid()
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != supervisor:
        os._exit(127)
    _connect_input(policy.input)
    os.chdir(policy.folder)
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)  # the interpreter ignores the first two, and exec would keep that
    _set_limits(policy.limits)
    os.nice(NICE)
    # When the machine has no memory left, the kernel kills the command and not the service.
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    listeners = [_confine(policy, home, port, untouchable_pids)] if policy.confined else []
    # Shells and libraries would put a long here-document or a temporary file into /tmp, which may be closed.
    environment = {"PATH": PATH, "HOME": home, "TMPDIR": home, "LANG": "C.UTF-8", **dict(policy.environment)}
    if port is not None:
        environment |= dict.fromkeys(("http_proxy", "https_proxy"), f"http://127.0.0.1:{port}")
    if policy.channel is not None:
        os.set_inheritable(policy.channel, True)
    socket.send_fds(questions, [READY], listeners)
    if not questions.recv(1):
        os._exit(127)
    try:
        os.execvpe(policy.command[0], policy.command, environment)
    except FileNotFoundError as error:
        raise FileNotFoundError(ENOENT, f"there is no program {policy.command[0]!r}") from error


def _confine(policy: Policy, home: str, port: int | None, untouchable_pids: tuple[int, ...]) -> int:
    # All capabilities are dropped; with no_new_privs exec does not give root's back.
    header = _CapabilityHeader(CAPABILITY_VERSION_3, 0)
    kernel.syscall(CAPSET[os.uname().machine], ctypes.byref(header), ctypes.byref((ctypes.c_uint32 * 6)()))
    version = landlock.read_abi()
    if version < landlock.ABI_MIN:
        raise OSError(ENOSYS, "this kernel has no Landlock: Linux 5.13 or later is needed, with lsm=landlock,…")
    version = min(version, policy.landlock_abi_max or version)
    readable = (*SYSTEM, sys.base_prefix, *policy.readable)
    writable = (policy.folder, home, *policy.writable, *((SHARED_MEMORY,) if policy.namespaces else ()))
    landlock.restrict_process(readable, writable, DEVICES, port, version)
    truncates_read = version < landlock.TRUNCATION
    return seccomp.install_filter(untouchable_pids, network=port is not None, truncates_read=truncates_read)


def _connect_input(text: str) -> None:
    # Unlike a pipe, a file in memory needs no process to feed it.
    fd = os.memfd_create("input")
    data = memoryview(text.encode())
    while data:
        data = data[os.write(fd, data) :]
    os.lseek(fd, 0, os.SEEK_SET)
    os.dup2(fd, 0)


def _set_limits(limits: Limits) -> None:
    for kind, limit in (
        (resource.RLIMIT_CPU, limits.cpu_s),
        (resource.RLIMIT_DATA, limits.memory_bytes),
        (resource.RLIMIT_AS, limits.address_bytes),
        (resource.RLIMIT_FSIZE, limits.file_bytes),
        (resource.RLIMIT_NPROC, USER_PROCESSES_MAX),
        (resource.RLIMIT_NOFILE, limits.open_files),
        (resource.RLIMIT_CORE, 0),
    ):
        _, most = resource.getrlimit(kind)
        value = limit if most == resource.RLIM_INFINITY else min(limit, most)
        resource.setrlimit(kind, (value, value))
