"""Folds a run's events into their current state: the public names of headrace.runs."""

from headrace.runs.fold import TERMINAL, Fold, find_scope, fold_events
from headrace.runs.parts import Block, Subagent, Task

__all__ = ["TERMINAL", "Block", "Fold", "Subagent", "Task", "find_scope", "fold_events"]
