"""Limits of a provider: circuit breakers for failing models, quotas of an account, and token estimates for them."""
