"""One StreamChat call, bounded by the run's time as a whole and by `modelTimeoutMs` of silence."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager

import grpc

from headrace.errors import ProviderUnavailable, StreamStalled
from services.orchestrator.money.spending import Spending
from services.orchestrator.peers.stubs import Peers
from services.orchestrator.peers.tape import TAPE
from services.orchestrator.run.answers.answer import Answer
from services.runtime.rpc.peer_calls import was_broken_connection
from services.runtime.rpc.push_stream import push_messages

METHOD = "LlmService/StreamChat"

CHECKS = 4
"""Silent checks in a row that mean a stall, in the limit's time; one may mean that this process stood still. A timer
that looks now and then costs nothing per delta."""


async def stream_model(peers: Peers, spending: Spending, request: bytes, answer: Answer) -> None:
    """Ask the model and let `answer` take what it streams.

    Raises:
        StreamStalled: Nothing came for too long.
        BudgetExceeded: The run's time is over.
        HeadraceError: The gateway's error.
    """
    with noting_chat(request, answer.take) as take:
        await _push_answer(peers, spending, request, answer, take)


async def _push_answer(
    peers: Peers, spending: Spending, request: bytes, answer: Answer, take: Callable[[bytes], None]
) -> None:
    call = peers.stream_chat(request, timeout=spending.time_left_s)
    limit_s = spending.model_timeout_s
    silence = asyncio.timeout(None)
    try:
        async with silence:
            with _SilenceWatch(silence, answer, limit_s):
                await push_messages(call, take)
    except TimeoutError as error:
        if not silence.expired():
            raise
        raise StreamStalled(f"the model was silent for {limit_s:g} s (modelTimeoutMs)") from error
    except ProviderUnavailable as error:
        # The answer is complete, only its end is missing.
        if answer.finish_reason and was_broken_connection(error):
            return
        # A call may also be given up as unreachable when its deadline comes before its connection.
        if spending.time_left_s <= 0:
            raise spending.make_exceeded("timeoutMs") from error
        raise
    except grpc.aio.AioRpcError as error:
        # The gateway's own errors arrive as ours; what is left is our deadline, or a bug of the gateway.
        if error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
            raise
        raise spending.make_exceeded("timeoutMs") from error
    if not answer.finish_reason:
        raise ProviderUnavailable("the model's stream ended before its answer was complete; try again")


@contextmanager
def noting_chat(request: bytes, take: Callable[[bytes], None]) -> Generator[Callable[[bytes], None]]:
    """Yield `take`, or where the run is recorded what notes each delta before it takes it."""
    tape = TAPE.get()
    if tape is None:
        yield take
        return
    with tape.calling(METHOD, request) as call:

        def note_and_take(delta: bytes) -> None:
            call.note(delta)
            take(delta)

        yield note_and_take


class _SilenceWatch:
    """Lets `silence` expire when there is no progress for so long."""

    def __init__(self, silence: asyncio.Timeout, answer: Answer, limit_s: float) -> None:
        self._silence = silence
        self._answer = answer
        self._pause_s = limit_s / CHECKS
        self._seen: object = answer.progress
        self._silent_checks = 0

    def __enter__(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._pause_s, self._check)

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()

    def _check(self) -> None:
        progress = self._answer.progress
        self._silent_checks = self._silent_checks + 1 if progress == self._seen else 0
        self._seen = progress
        loop = asyncio.get_running_loop()
        if self._silent_checks == CHECKS:
            self._silence.reschedule(loop.time())
        else:
            self._timer = loop.call_later(self._pause_s, self._check)
