"""Versions of agents, and the agents that tenants have of their own."""
