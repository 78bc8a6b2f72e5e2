"""Replicas in separate network namespaces on one bridge, so that any two can be disconnected.

Needs root and the `ip` program. The machine's own network is untouched: the bridge is in a namespace too, and
the test's own thread runs there meanwhile.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Generator, Iterable
from contextlib import ExitStack, contextmanager
from itertools import count

PORT = 7000

SUBNET = "10.213.0.{}"
OUTSIDE = SUBNET.format(1)
"""Address of the test and of the provider."""

NOBODY = "02:00:00:00:00:01"
"""A MAC address that no interface has; packets to it are silently lost."""

_CLONE_NEWNET = 0x40000000


class Lost:
    """A link between two replicas; packets sent while it is cut are lost, and TCP retransmits them."""

    def __init__(self, network: Network, ends: tuple[str, str]) -> None:
        self._network = network
        self._ways = (ends, ends[::-1])

    def cut(self) -> None:
        for here, there in self._ways:
            self._network.say(here, "neigh", "replace", self._network.addresses[there], "lladdr", NOBODY, "dev", "eth0")

    def mend(self) -> None:
        for here, there in self._ways:
            self._network.say(here, "neigh", "flush", "to", self._network.addresses[there], "nud", "permanent")


class Network:
    """The namespaces of one test, connecting its replicas."""

    host = OUTSIDE

    def __init__(self, prefix: str, replicas: Iterable[str]) -> None:
        self._prefix = prefix
        self.addresses = {replica: SUBNET.format(number) for replica, number in zip(replicas, count(2), strict=False)}

    def name(self, replica: str) -> str:
        """Return the name of a replica's namespace."""
        return f"{self._prefix}-{replica}"

    def at(self, replica: str) -> str:
        return f"{self.addresses[replica]}:{PORT}"

    def before(self, replica: str) -> list[str]:
        return ["ip", "netns", "exec", self.name(replica)]

    async def link(self, caller: str, replica: str) -> tuple[str, Lost]:
        return self.at(replica), Lost(self, (caller, replica))

    def say(self, replica: str, *words: str) -> None:
        """Run `ip` in a replica's namespace."""
        _ip("-n", self.name(replica), *words)

    def join(self, replica: str) -> None:
        """Connect a replica's namespace to the bridge."""
        port = f"p{self.addresses[replica].rpartition('.')[2]}"
        peer = ("peer", "name", "eth0", "netns", self.name(replica))
        self.say("outside", "link", "add", port, "type", "veth", *peer)
        self.say("outside", "link", "set", port, "master", "bridge", "up")
        self.say(replica, "address", "add", f"{self.addresses[replica]}/24", "dev", "eth0")
        self.say(replica, "link", "set", "eth0", "up")
        self.say(replica, "link", "set", "lo", "up")


def is_possible() -> bool:
    """Return whether this process can create namespaces."""
    if shutil.which("ip") is None:
        return False
    name = f"headrace-{os.getpid()}-try"
    try:
        _ip("netns", "add", name)
    except subprocess.CalledProcessError:
        return False
    try:
        _ip("-n", name, "link", "add", "bridge", "type", "bridge")
        _ip("-n", name, "link", "add", "p0", "type", "veth", "peer", "name", "eth0")
    except subprocess.CalledProcessError:
        return False
    finally:
        _ip("netns", "delete", name)
    return True


@contextmanager
def network(replicas: Iterable[str]) -> Generator[Network]:
    """Create a network for the block; this thread, and the processes it starts, are at `OUTSIDE`."""
    made = Network(f"headrace-{os.getpid()}", replicas)
    with ExitStack() as stack:
        for replica in ("outside", *made.addresses):
            _ip("netns", "add", made.name(replica))
            stack.callback(_ip, "netns", "delete", made.name(replica))
        made.say("outside", "link", "add", "bridge", "type", "bridge")
        made.say("outside", "address", "add", f"{OUTSIDE}/24", "dev", "bridge")
        made.say("outside", "link", "set", "bridge", "up")
        made.say("outside", "link", "set", "lo", "up")
        for replica in made.addresses:
            made.join(replica)
        stack.enter_context(inside(made.name("outside")))
        yield made


@contextmanager
def inside(name: str) -> Generator[None]:
    """Create this thread's new sockets in a namespace while inside the block."""
    with open("/proc/thread-self/ns/net", "rb") as here, open(f"/run/netns/{name}", "rb") as there:
        _enter(there.fileno())
        try:
            yield
        finally:
            _enter(here.fileno())


def _enter(namespace: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace, _CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)
