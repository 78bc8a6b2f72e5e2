"""Versions of agents, to which runs are pinned."""
