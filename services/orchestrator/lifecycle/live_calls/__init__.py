"""Calls of people about live runs: submits, steers, lists."""
