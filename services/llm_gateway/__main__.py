"""`python -m services.llm_gateway`: the gateway's process."""

from __future__ import annotations

import os

from services.llm_gateway.config import Config
from services.llm_gateway.server import gateway
from services.llm_gateway.telemetry.masking import mask_log_lines, secrets_of
from services.runtime.process.program import run, until_stopped


async def main(config: Config) -> None:
    """Serve until a signal comes."""
    if config.interaction_log_mask_sensitive:
        mask_log_lines(*secrets_of(os.environ))
    async with gateway(config, os.environ):
        await until_stopped()


if __name__ == "__main__":
    run(Config, "LLM_GATEWAY", main)
