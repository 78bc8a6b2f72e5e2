"""A sync of the disk that waits and fails on command."""

import errno
import os
import threading


class HeldSync:
    """An fdatasync that can be made to wait, and then to fail with "Input/output error"."""

    def __init__(self) -> None:
        self.reached, self.go_on = threading.Event(), threading.Event()
        self.go_on.set()
        self.fails = False

    def hold(self) -> None:
        self.reached.clear()
        self.go_on.clear()

    def __call__(self, fd: int) -> None:
        self.reached.set()
        self.go_on.wait(10)
        if self.fails:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        os.fdatasync(fd)
