"""`python -m services.suite`: memory, llm_gateway, orchestrator and facade, with the settings that each has by itself.

With HEADRACE_TRANSPORT=local they reach each other in memory, by the addresses that they listen on.
"""

from __future__ import annotations

if __name__ == "__main__":
    from services.runtime.process.early_stop import exit_at_signals

    exit_at_signals()  # before the slow imports below

from services.facade import __main__ as facade
from services.llm_gateway import __main__ as llm_gateway
from services.memory import __main__ as memory
from services.orchestrator import __main__ as orchestrator
from services.runtime.process.program import Service, run_services

SERVICES = (
    Service(memory.Config, "MEMORY", memory.main),
    Service(llm_gateway.Config, "LLM_GATEWAY", llm_gateway.main),
    Service(orchestrator.Config, "ORCHESTRATOR", orchestrator.main),
    Service(facade.Config, "FACADE", facade.main),
)
"""Each stands behind those that it calls; they stop in the reverse order."""

if __name__ == "__main__":
    run_services(SERVICES, "suite")
