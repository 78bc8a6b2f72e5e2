"""whenBusy rollback: cancelled runs' messages stay in the log, but no model sees them."""

from __future__ import annotations

from headrace.v1 import memory_pb2
from services.orchestrator.peers.stubs import Peers
from services.orchestrator.run.run import Run


async def take_back(run: Run, peers: Peers) -> None:
    checkpoint_id = run.chat.revert()
    if checkpoint_id is None:
        return
    request = memory_pb2.RevertRequest(
        chat_id=run.chat_id,
        checkpoint_id=checkpoint_id,
        scope="model",
        run_id=run.id,
        generation=run.log.generation,
    )
    await peers.memory.Revert(request)
