"""A service's process: settings, logs, metrics, certificates, start and stop."""
