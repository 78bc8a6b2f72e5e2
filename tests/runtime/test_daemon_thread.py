"""A real thread, looked at from outside."""

import threading

from services.runtime.files.file_watch import DaemonThread


def test_leaving_an_executor_ends_its_thread() -> None:
    with DaemonThread("short work") as executor:
        thread = executor.submit(threading.current_thread).result(timeout=10)
    thread.join(timeout=10)
    assert not thread.is_alive()
