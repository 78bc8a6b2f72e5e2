"""python -m services.tools"""

from __future__ import annotations

if __name__ == "__main__":
    from services.runtime.process.early_stop import prepare_process

    prepare_process()  # before the slow imports below

import asyncio
import dataclasses
import os
from pathlib import Path

import structlog

from services.runtime.files.disk import make_private_folder
from services.runtime.net.allow_list import parse_allow_list
from services.runtime.process import program
from services.tools.catalogue.catalogue import Catalogue
from services.tools.config import Config
from services.tools.mcp_client.servers import prepare_mcp
from services.tools.sandbox.leftovers import make_mark
from services.tools.sandbox.tiers import Sandbox, find_sandbox
from services.tools.server import tool_server

log = structlog.get_logger()


async def main(config: Config) -> None:
    await asyncio.to_thread(close_folders, config.data_dir)
    has_tenants = not config.server.auth.is_none
    finding = find_sandbox(
        config.sandbox,
        allow_unsandboxed=config.allow_unsandboxed,
        has_tenants=has_tenants,
        mark=make_mark(config.data_dir),
    )
    found, _ = await asyncio.gather(finding, asyncio.to_thread(prepare_mcp, config.config_dir, os.environ))
    sandbox = choose_sandbox(config, found)
    catalogue = Catalogue(config.config_dir / "tools")
    async with tool_server(config, sandbox, catalogue, env=os.environ):
        await program.wait_for_stop()


def close_folders(data_dir: Path) -> None:
    """Create the service's folders, accessible only to its user. Raises OSError."""
    make_private_folder(data_dir, is_volume=True)
    for name in ("workspaces", "effects", "mcp_tokens", "skill_envs"):
        make_private_folder(data_dir / name)


def choose_sandbox(config: Config, sandbox: Sandbox) -> Sandbox:
    """Complete the sandbox with the operator's paths and log anything that weakens it. Raises OSError if a required
    tier fails."""
    facts = {"tier": sandbox.tier, "problem": sandbox.problem}
    match sandbox.tier:
        case "bubblewrap" | "process" | "external":
            (log.warning if sandbox.problem else log.info)("sandbox found", **facts)
        case None if config.sandbox != "auto":
            raise OSError(f"the {config.sandbox} sandbox was demanded and does not work: {sandbox.problem}")
        case _:
            log.error("no sandbox", **facts, commands="run" if sandbox.tier else "refused")
    sandbox.show_in_metrics()
    if config.network_allow and not sandbox.has_namespaces:
        problem = f"HEADRACE_TOOLS_NETWORK_ALLOW needs bubblewrap; {sandbox.problem}"
        log.error("commands have no network", problem=problem, tier=sandbox.tier)
    directory, allowed = config.bash_working_directory, config.bash_allowed_paths.split(",")
    return dataclasses.replace(
        sandbox,
        readable=tuple(path.strip() for path in allowed if path.strip()),
        writable=(str(directory),) if directory else (),
        allow_list=parse_allow_list(config.network_allow) if config.network_allow and sandbox.has_namespaces else None,
    )


if __name__ == "__main__":
    program.run_service(Config, "TOOLS", main)
