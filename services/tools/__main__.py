"""python -m services.tools"""

from __future__ import annotations

import asyncio
import dataclasses

import structlog

from headrace.v1 import tools_pb2, tools_pb2_grpc
from services.runtime import program
from services.runtime.server import Served, serving, until_stopped
from services.runtime.watching import watch
from services.tools.catalogue import Catalogue
from services.tools.config import Config
from services.tools.executing import Executor
from services.tools.sandbox.selftest import Sandbox, find_sandbox
from services.tools.service import ToolService
from services.tools.workspace import Workspaces

NAME = tools_pb2.DESCRIPTOR.services_by_name["ToolService"].full_name

log = structlog.get_logger()


async def main(config: Config) -> None:
    sandbox = choose_sandbox(config, await find_sandbox(allow_unsandboxed=config.allow_unsandboxed))
    folder = config.config_dir / "tools"
    catalogue = Catalogue(folder)
    workspaces = Workspaces(config.data_dir / "workspaces")
    executor = Executor(catalogue, workspaces, sandbox, config.commands_max)
    service = ToolService(catalogue, executor, sandbox)  # pyright: ignore[reportAbstractUsage] - later issues
    served = Served(NAME, service, tools_pb2_grpc.add_ToolServiceServicer_to_server)
    async with serving(config.server, [served]), asyncio.TaskGroup() as group:
        watching = group.create_task(watch(folder, catalogue.reload))
        await until_stopped()
        watching.cancel()


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
