"""PLAN_EXECUTE: a planner, the tasks of its plan, and an answer from their reports."""
