"""REMOTE: an agent elsewhere that speaks A2A answers; what it asks, our user is asked."""

from __future__ import annotations

from services.orchestrator.mode_api.mode_run import ModeRun
from services.orchestrator.mode_api.remote.conversation import RemoteConversation


async def run_remote(mode: ModeRun) -> str:
    mode.check_wants_no_call()
    return await RemoteConversation(mode).run()
