"""Limits of a provider: circuit breakers, account quotas, token estimates."""
