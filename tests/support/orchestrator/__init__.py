"""A real orchestrator with its peers, and its runs' events. Other modules of this folder serve only some tests."""

from tests.support.orchestrator.events import as_json, ask_for, kinds, list_notices, only, read, results, run_of, types
from tests.support.orchestrator.people import CHAT, answers, ask, cancels, state, submit, submits
from tests.support.orchestrator.replicas import Replica, replica, two_replicas
from tests.support.orchestrator.requests import assert_paired, last_result, reminder, shown
from tests.support.orchestrator.scripted_tools import tool
from tests.support.orchestrator.steps import ANSWER, Step, answer, call, call_tool, content, finish, reasoning
from tests.support.orchestrator.suite import MODEL, NO_DRAIN, ONESHOT, REACT, Serve, Suite

__all__ = ["ANSWER", "CHAT", "MODEL", "NO_DRAIN", "ONESHOT", "REACT", "Replica", "Serve", "Step", "Suite", "answer"]
__all__ += ["answers", "as_json", "ask", "ask_for", "assert_paired", "call", "call_tool", "cancels", "content"]
__all__ += ["finish", "kinds", "last_result", "list_notices", "only", "read", "reasoning", "reminder", "replica"]
__all__ += ["results", "run_of", "shown", "state", "submit", "submits", "tool", "two_replicas", "types"]
