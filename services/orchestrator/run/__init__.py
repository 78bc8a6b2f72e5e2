"""A live run has scopes, answers, a plan, a budget, a log and events."""
