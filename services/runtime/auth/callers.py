"""Which callers may call which RPC, and with which scope, from the contract; RPCs outside the contract are refused."""

from __future__ import annotations

from headrace.contract import PUBLIC, RPCS
from headrace.errors import PermissionDenied
from services.runtime.auth.identity import Identity, check_scope

CLIENT, FACADE, ORCHESTRATOR, LLM_GATEWAY, MEMORY, TOOLS = (
    "client",
    "facade",
    "orchestrator",
    "llm_gateway",
    "memory",
    "tools",
)
SERVICES = frozenset({FACADE, ORCHESTRATOR, LLM_GATEWAY, MEMORY, TOOLS})

_A2A = (
    *("SendMessage", "SendStreamingMessage", "GetTask", "ListTasks", "CancelTask", "SubscribeToTask"),
    *("GetExtendedAgentCard", "ListTaskPushNotificationConfigs", "CreateTaskPushNotificationConfig"),
    *("GetTaskPushNotificationConfig", "DeleteTaskPushNotificationConfig"),
)
"""RPCs of another protocol, which has no scopes: the RPCs that they call check them."""

CALLERS = {path: rpc.callers for path, rpc in RPCS.items()} | {f"/lf.a2a.v1.A2AService/{name}": PUBLIC for name in _A2A}
"""Callers by the RPC's name on the wire; `client` is every caller outside the suite."""

WITHOUT_USER = frozenset(path for path, rpc in RPCS.items() if rpc.without_user)


def check_caller(caller: str, method: str) -> None:
    if caller not in CALLERS.get(method, frozenset()):
        raise PermissionDenied(f"{caller} may not call {method}", caller=caller)


def check_method_scope(method: str, identity: Identity) -> None:
    """Raise PermissionDenied if the credential lacks the scope that the contract requires for the RPC."""
    if scope := find_scope(method):
        check_scope(identity, scope)


def find_scope(method: str) -> str:
    """Return the scope that the contract requires for the RPC, a name of CALLERS; empty if none."""
    return RPCS[method].scope if method in RPCS else ""
