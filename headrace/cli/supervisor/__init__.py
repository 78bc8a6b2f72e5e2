"""Runs all services on this machine: settings, processes, logs, end."""
