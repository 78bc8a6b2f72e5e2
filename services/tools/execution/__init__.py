"""Executes one call, with its effect record, its artifacts and a result of bounded length."""
