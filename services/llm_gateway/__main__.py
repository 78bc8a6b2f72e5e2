"""`python -m services.llm_gateway`: the gateway's process."""

from __future__ import annotations

if __name__ == "__main__":
    from services.runtime.process.early_stop import prepare_process

    prepare_process()  # before the slow imports below

import os

from services.llm_gateway.config import Config
from services.llm_gateway.server import gateway
from services.runtime.process.program import run_service, wait_for_stop
from services.runtime.telemetry.masking import find_secrets, mask_log_lines


async def main(config: Config) -> None:
    if config.interaction_log_mask_sensitive:
        mask_log_lines(*find_secrets(os.environ))
    async with gateway(config, os.environ):
        await wait_for_stop()


if __name__ == "__main__":
    run_service(Config, "LLM_GATEWAY", main)
