"""Money and tokens: each run's own budget, and those of tenants, users, API keys and agents."""
