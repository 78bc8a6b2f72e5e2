"""whenBusy rollback: what cancelled runs said stays in the log and the history, and no model sees it any more."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.v1 import memory_pb2
from services.orchestrator.peers.stubs import UNARY_TIMEOUT_S, Peers, translating_peer_errors
from services.orchestrator.run.run import Run
from services.runtime.rpc.call_ids import forward_metadata


async def take_back(run: Run, peers: Peers) -> None:
    """Take back, for models alone, the runs that `run` rolls back. They have ended: it is `run`'s turn."""
    checkpoints = [before.checkpoint_id for before in _all(run) if before.checkpoint_id is not None]
    if not checkpoints:
        return
    # At the checkpoint of a run that has taken others back those were still in the view: go back as far as it did.
    run.checkpoint_id = min(checkpoints)
    run.rolls_back = []
    request = memory_pb2.RevertRequest(
        chat_id=run.chat_id,
        checkpoint_id=run.checkpoint_id,
        scope="model",
        run_id=run.id,
        generation=run.log.generation,
    )
    with translating_peer_errors():
        await peers.memory.Revert(request, timeout=UNARY_TIMEOUT_S, metadata=forward_metadata())


def _all(run: Run) -> Iterator[Run]:
    """The runs to take back: those that `run` cancelled, and those that they should have taken back and did not."""
    for before in run.rolls_back:
        yield before
        yield from _all(before)
