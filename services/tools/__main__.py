"""python -m services.tools"""

from __future__ import annotations

import dataclasses

import structlog

from services.runtime import program
from services.runtime.server import until_stopped
from services.tools.catalogue import Catalogue
from services.tools.config import Config
from services.tools.sandbox.selftest import Sandbox, find_sandbox
from services.tools.server import tool_server

log = structlog.get_logger()


async def main(config: Config) -> None:
    sandbox = choose_sandbox(config, await find_sandbox(allow_unsandboxed=config.allow_unsandboxed))
    catalogue = Catalogue(config.config_dir / "tools")
    async with tool_server(config, sandbox, catalogue):
        await until_stopped()


def choose_sandbox(config: Config, found: Sandbox) -> Sandbox:
    """The sandbox as configured, anything but the process tier said loudly. Raises OSError where that was demanded."""
    if found.tier == "process":
        log.info("sandbox found", tier=found.tier)
    elif config.sandbox == "process":
        raise OSError(f"the process sandbox was demanded and does not work: {found.problem}")
    else:
        log.error("no sandbox", tier=found.tier, problem=found.problem, commands="run" if found.tier else "refused")
    directory, allowed = config.bash_working_directory, config.bash_allowed_paths.split(",")
    return dataclasses.replace(
        found,
        readable=tuple(path.strip() for path in allowed if path.strip()),
        writable=(str(directory),) if directory else (),
    )


if __name__ == "__main__":
    program.run(Config, "TOOLS", main)
