"""Calls about live runs: submits, steers, lists."""
