"""A live run: its scopes, answers, plan, budget, log and events, and what it goes on from."""
