"""The targets of the attempts: the test's own files, sockets and process, which must stay unchanged."""

import os
import socket
import subprocess
import tempfile
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

SECRET = "nobody may read this"


@dataclass(frozen=True, slots=True)
class Victims:
    """Passed to the attempts as `v`."""

    outside: str
    """A folder next to the workspace."""

    secret: str
    """A file in it."""

    shown: str
    """Another, which a command may read."""

    socket_path: str
    abstract_name: str
    tcp_port: int
    udp_port: int
    pid: int
    """A process of the same user with SECRET in its environment."""


@contextmanager
def victims(folder: Path) -> Generator[tuple[Victims, Callable[[], list[str]]]]:
    """Yield all victims, alive inside the block, and a function that lists the harm done to them."""
    outside = folder / "outside"
    outside.mkdir()
    (outside / "secret").write_text(SECRET)
    (outside / "secret").chmod(0o600)
    (outside / "shown").write_text("everybody may read this")
    with ExitStack() as stack:
        # A socket's path has room for 108 bytes.
        short = stack.enter_context(tempfile.TemporaryDirectory(prefix="hr-"))
        unix = _listener(stack, socket.AF_UNIX, f"{short}/s")
        abstract = _listener(stack, socket.AF_UNIX, f"\0headrace-test-{os.getpid()}-{folder.name}")
        tcp = _listener(stack, socket.AF_INET, ("127.0.0.1", 0))
        udp = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        udp.bind(("127.0.0.1", 0))
        sleeper = stack.enter_context(subprocess.Popen(["sleep", "600"], env={"SECRET": SECRET}))
        stack.callback(sleeper.kill)
        before = _read_state(outside, sleeper.pid)
        found = Victims(
            outside=str(outside),
            secret=str(outside / "secret"),
            shown=str(outside / "shown"),
            socket_path=f"{short}/s",
            abstract_name=abstract.getsockname().decode(),
            tcp_port=tcp.getsockname()[1],
            udp_port=udp.getsockname()[1],
            pid=sleeper.pid,
        )

        def harm() -> list[str]:
            if sleeper.poll() is not None:
                return ["the process has ended"]
            after = _read_state(outside, sleeper.pid)
            changed = [f"{old} became {new}" for old, new in zip(before, after, strict=False) if old != new]
            changed += ["files have come or gone"] * (len(before) != len(after))
            return changed + [
                f"heard: {listener}" for listener in (unix, abstract, tcp, udp) if _has_connection(listener)
            ]

        yield found, harm


def as_json(found: Victims) -> dict[str, object]:
    return asdict(found)


def _listener(stack: ExitStack, family: int, address: str | tuple[str, int]) -> socket.socket:
    listener = stack.enter_context(socket.socket(family))
    listener.bind(address)
    listener.listen()
    return listener


def _read_state(outside: Path, pid: int) -> list[object]:
    found: list[object] = [
        (path.name, status.st_mode, status.st_uid, status.st_nlink, status.st_size, status.st_mtime_ns)
        for path in (outside, *sorted(outside.iterdir()))
        for status in [path.stat()]
    ]
    limits = Path(f"/proc/{pid}/limits").read_text()
    return [*found, (outside / "secret").read_text(), limits, os.getpriority(os.PRIO_PROCESS, pid)]


def _has_connection(listener: socket.socket) -> bool:
    listener.setblocking(False)
    try:
        listener.recv(1) if listener.type == socket.SOCK_DGRAM else listener.accept()[0].close()
    except BlockingIOError:
        return False
    return True
