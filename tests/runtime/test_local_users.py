"""The user at the other end of a loopback connection, as reported by the kernel."""

import os
import shutil
import socket
import subprocess

import pytest

from services.runtime.local_users import find_user, is_foreign_address

NOBODY = 65534
PYTHON = shutil.which("python3", path="/usr/bin:/bin")
"""An interpreter that other users may run too."""

CONNECTING = "import socket, sys; s = socket.create_connection((sys.argv[1], int(sys.argv[2]))); sys.stdin.read()"

needs_root = pytest.mark.skipif(
    os.geteuid() != 0 or PYTHON is None, reason="NOTICE: only root starts programs of other users"
)


@pytest.fixture(params=[socket.AF_INET, socket.AF_INET6], ids=["IPv4", "IPv6"])
def listening(request: pytest.FixtureRequest) -> socket.socket:
    host = "127.0.0.1" if request.param == socket.AF_INET else "::1"
    try:
        return socket.create_server((host, 0), family=request.param)
    except OSError as error:
        pytest.skip(f"NOTICE: {error}")


def test_our_own_connections_are_not_foreign(listening: socket.socket) -> None:
    own = listening.getsockname()[:2]
    with listening, socket.create_connection(own):
        accepted, peer = listening.accept()
        with accepted:
            assert find_user(peer[:2], own) == os.geteuid()
            assert not is_foreign_address(peer[:2], own)


@needs_root
def test_another_user_s_connection_is_foreign(listening: socket.socket) -> None:
    own = listening.getsockname()[:2]
    assert PYTHON is not None
    command = [PYTHON, "-I", "-c", CONNECTING, own[0], str(own[1])]
    with listening, subprocess.Popen(command, user=NOBODY, stdin=subprocess.PIPE):
        accepted, peer = listening.accept()
        with accepted:
            assert find_user(peer[:2], own) == NOBODY
            assert is_foreign_address(peer[:2], own)


def test_a_missing_connection_belongs_to_no_user() -> None:
    assert find_user(("127.0.0.1", 1), ("127.0.0.1", 2)) is None
    assert not is_foreign_address(("127.0.0.1", 1), ("127.0.0.1", 2))


def test_connections_of_other_machines_are_not_looked_up() -> None:
    assert not is_foreign_address(("192.0.2.1", 1000), ("192.0.2.2", 80))
