"""What replicas of a suite cannot be together with, said before anything starts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from headrace.cli.supervisor.start_errors import CannotStart
from headrace.cli.supervisor.suite_plan import ProcessSpec, SuitePlan

GATEWAYS = "HEADRACE_LLM_GATEWAY_REPLICAS"


def check_replicas(plan: SuitePlan, env: Mapping[str, str]) -> None:
    """Raise CannotStart for a plan or setting with which several replicas cannot work."""
    if plan.replicas == 1:
        return
    if not plan.is_one_process:
        raise CannotStart("--replicas needs --one-process: a replica is one process; with --split there is one of each")
    if env.get("HEADRACE_TRANSPORT") == "grpcio":
        raise CannotStart("--replicas needs HEADRACE_TRANSPORT=h2 or none: grpcio knows no replicas behind one address")
    if not env.get(GATEWAYS, "1").isdecimal():
        raise CannotStart(f"{GATEWAYS}: {env[GATEWAYS]!r}: expected a whole number")
    addresses = Counter(address for process in plan.build_processes() for address in _list_metrics(process))
    if taken := [address for address, count in addresses.items() if count > 1]:
        raise CannotStart(
            f"with --replicas {plan.replicas} each replica serves its metrics at the port behind the one before, and "
            f"{taken[0]} would be of two; leave {plan.replicas} ports for each HEADRACE_…_METRICS_LISTEN, or set one"
        )


def _list_metrics(process: ProcessSpec) -> list[str]:
    """Return where the process serves metrics, without any free port."""
    given = (address for name, address in process.environment.items() if name.endswith("_METRICS_LISTEN"))
    return [address for address in given if address and not address.endswith(":0")]
