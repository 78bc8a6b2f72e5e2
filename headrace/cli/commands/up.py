"""headrace up: the whole suite on this machine, until it is stopped."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import click

from headrace.cli.facade.options import make_connection_options, set_url
from headrace.cli.supervisor.child_environment import ENV_FILE, PROVIDER_FILE, read_env_file
from headrace.cli.supervisor.ports import CannotStart, reserve_port
from headrace.cli.supervisor.suite_plan import SuitePlan, check_replicas
from headrace.cli.supervisor.supervisor import Question, run_suite

MEMORY_PORT = 7003
SIMULATOR_PORT = 7005
"""The default of `headrace simulate`, too."""

PORT = click.IntRange(0, 65535)

REPLICAS_MAX = 64
"""As many peers as an orchestrator knows."""


def _open_project(_context: click.Context, _option: click.Parameter, folder: Path) -> Path:
    """Check the configuration folder and add the variables of its `.env`, before other options are read from them."""
    if not (folder / PROVIDER_FILE).is_file():
        problem = f"has no {PROVIDER_FILE}" if folder.is_dir() else "is no folder"
        raise CannotStart(
            f"{folder.absolute()} {problem}: `headrace init DIR` creates a project; start `headrace up` in it, or name "
            "it with --config-dir"
        )
    variables: dict[str, str] = {}
    try:
        variables = read_env_file(folder)
    except PermissionError:  # as in a container, which has the variables already
        click.echo(f"warning: {folder / ENV_FILE} cannot be read: Permission denied", err=True)
    except (OSError, UnicodeDecodeError) as error:
        raise CannotStart(f"{folder / ENV_FILE} cannot be read: {error}") from error
    for name, value in variables.items():
        os.environ[name] = os.environ.get(name) or value
    return folder


@click.command(params=make_connection_options("token"))
@click.option(
    "--config-dir",
    envvar="HEADRACE_CONFIG_DIR",
    default=".",
    show_default=True,
    is_eager=True,
    callback=_open_project,
    type=click.Path(path_type=Path),
    help="Project folder with agents/, tools/, providers.json and .env.",
)
@click.option(
    "--data-dir",
    envvar="HEADRACE_DATA_DIR",
    default=".data",
    show_default=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Chats, workspaces and logs/<process>.log.",
)
@click.option(
    "--port",
    envvar=["HEADRACE_FACADE_PORT", "SERVER_PORT"],
    default=8080,
    show_default=True,
    type=PORT,
    help="HTTP; 0: any free port.",
)
@click.option("--grpc-port", default=7001, show_default=True, type=PORT, help="AgentService; 0: any free port.")
@click.option(
    "--memory-port",
    type=PORT,
    help="MemoryService, for programs that read chats over gRPC.  [default: 7003; with --grpc-port 0 any]",
)
@click.option("--simulate", is_flag=True, help="Start the simulated provider too.")
@click.option("--simulate-port", default=SIMULATOR_PORT, show_default=True, type=PORT, help="0: any free port.")
@click.option(
    "--one-process/--split",
    "is_one_process",
    default=True,
    show_default=True,
    help="All services but tools in one process, which talk in memory; or a process for each, as in a cluster.",
)
@click.option(
    "--replicas",
    default=1,
    show_default=True,
    type=click.IntRange(1, REPLICAS_MAX),
    help="Processes that share the work, one for each core to be used; with several, memory has one of its own.",
)
@click.option("--verbose", is_flag=True, help="Show the services' logs on standard error too.")
@click.option("--ask", "message", help="Ask this once everything is ready, then stop with the run's exit code.")
@click.option("--agent", help="Whom to ask.")
def up(
    config_dir: Path,
    data_dir: Path,
    port: int,
    grpc_port: int,
    memory_port: int | None,
    simulate: bool,
    simulate_port: int,
    is_one_process: bool,
    replicas: int,
    verbose: bool,
    message: str | None,
    agent: str | None,
) -> None:
    """Start all services on this machine and keep them running.

    Ctrl-C and SIGTERM let running requests finish; a second one ends everything at once. With --simulate the variable
    SIMULATOR_URL says where the simulated provider is; providers.json may name it: "baseUrl": "env:SIMULATOR_URL".
    """
    if memory_port is None:  # where --grpc-port is any, several suites may be on the machine
        memory_port = MEMORY_PORT if grpc_port else 0
    with tempfile.TemporaryDirectory(prefix="headrace-") as run_dir, ExitStack() as ports:
        plan = SuitePlan(
            config_dir=config_dir.absolute(),
            data_dir=data_dir.absolute(),
            run_dir=Path(run_dir),
            http_port=ports.enter_context(reserve_port("--port", port)),
            grpc_port=ports.enter_context(reserve_port("--grpc-port", grpc_port)),
            memory_port=ports.enter_context(reserve_port("--memory-port", memory_port)),
            simulator_port=ports.enter_context(reserve_port("--simulate-port", simulate_port)) if simulate else None,
            is_one_process=is_one_process,
            replicas=replicas,
        )
        check_replicas(plan, os.environ)
        set_url(plan.url)
        question = Question(message, agent) if message else None
        sys.exit(asyncio.run(run_suite(plan, question, is_verbose=verbose)))
