"""`python -m services.suite [SERVICE …]`: memory, llm_gateway, orchestrator and facade, or those that are named.

Each has the settings that it has by itself. With HEADRACE_TRANSPORT=local they reach each other in memory, by the
addresses that they listen on.
"""

from __future__ import annotations

if __name__ == "__main__":
    from services.runtime.process.early_stop import prepare_process

    prepare_process()  # before the slow imports below

import argparse

from services.facade import __main__ as facade
from services.llm_gateway import __main__ as llm_gateway
from services.memory import __main__ as memory
from services.orchestrator import __main__ as orchestrator
from services.runtime.process.program import Service, run_services

SERVICES = {
    "memory": Service(memory.Config, "MEMORY", memory.main),
    "llm_gateway": Service(llm_gateway.Config, "LLM_GATEWAY", llm_gateway.main),
    "orchestrator": Service(orchestrator.Config, "ORCHESTRATOR", orchestrator.main),
    "facade": Service(facade.Config, "FACADE", facade.main),
}
"""A service comes after the services it calls; they stop in the reverse order."""

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="services.suite", description="Services in one process.")
    parser.add_argument("services", nargs="*", default=[*SERVICES], choices=[*SERVICES, [*SERVICES]], metavar="SERVICE")
    named = parser.parse_args().services
    run_services([service for name, service in SERVICES.items() if name in named], "suite")
