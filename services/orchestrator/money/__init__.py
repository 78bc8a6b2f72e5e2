"""The money and tokens that runs spend: each run's own budget, and those of tenants, users, API keys and agents."""
