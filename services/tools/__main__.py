"""python -m services.tools"""

from __future__ import annotations

import dataclasses
import os

import structlog

from services.runtime.process import program
from services.tools.catalogue.catalogue import Catalogue
from services.tools.config import Config
from services.tools.net.allow_list import parse_allow_list
from services.tools.sandbox.selftest import find_sandbox
from services.tools.sandbox.tier import Sandbox
from services.tools.server import tool_server

log = structlog.get_logger()


async def main(config: Config) -> None:
    sandbox = choose_sandbox(config, await find_sandbox(config.sandbox, allow_unsandboxed=config.allow_unsandboxed))
    catalogue = Catalogue(config.config_dir / "tools")
    async with tool_server(config, sandbox, catalogue, env=os.environ):
        await program.wait_for_stop()


def choose_sandbox(config: Config, found: Sandbox) -> Sandbox:
    """The sandbox with the operator's paths; what weakens it is said. Raises OSError where the demanded one fails."""
    facts = {"tier": found.tier, "problem": found.problem}
    match found.tier:
        case "bubblewrap" | "process" | "external":
            (log.warning if found.problem else log.info)("sandbox found", **facts)
        case None if config.sandbox != "auto":
            raise OSError(f"the {config.sandbox} sandbox was demanded and does not work: {found.problem}")
        case _:
            log.error("no sandbox", **facts, commands="run" if found.tier else "refused")
    found.show_in_metrics()
    if config.network_allow and not found.namespaces:
        log.error("commands have no network", reason="the allow-list needs the bubblewrap tier", tier=found.tier)
    directory, allowed = config.bash_working_directory, config.bash_allowed_paths.split(",")
    return dataclasses.replace(
        found,
        readable=tuple(path.strip() for path in allowed if path.strip()),
        writable=(str(directory),) if directory else (),
        allow=parse_allow_list(config.network_allow) if config.network_allow and found.namespaces else None,
    )


if __name__ == "__main__":
    program.run_service(Config, "TOOLS", main)
