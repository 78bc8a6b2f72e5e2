"""Budgets of tenants, users, API keys and agents, of which runs are granted parts before they spend."""
