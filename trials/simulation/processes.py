"""Runs work in processes that end with it, so that garbage of one world is never collected and never affects
another seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkContext, SpawnContext
from typing import Any, TypeVar

T = TypeVar("T")


def run_in_processes(context: ForkContext | SpawnContext, tasks: Iterable[Callable[[], T]], jobs: int) -> Iterator[T]:
    """Run each task in its own process, `jobs` at a time; yield the results as the processes end.

    Raises:
        RuntimeError: A process has ended without a result; its reason is on stderr.
    """
    waiting = iter(tasks)
    running: dict[Any, Any] = {}
    try:
        while True:
            while len(running) < jobs and (task := next(waiting, None)) is not None:
                receiver, sender = context.Pipe(duplex=False)
                process = context.Process(target=_run_and_send, args=(task, sender))
                process.start()
                sender.close()
                running[receiver] = process
            if not running:
                return
            for receiver in wait([*running]):
                process = running.pop(receiver)
                result = _receive(receiver)
                process.join()
                yield result
    finally:
        for process in running.values():
            process.terminate()


def _run_and_send(task: Callable[[], object], sender: Connection[Any, Any]) -> None:
    with sender:
        sender.send(task())


def _receive(receiver: Any) -> Any:
    with receiver:
        try:
            return receiver.recv()
        except EOFError:
            raise RuntimeError("a process has ended without a result") from None
