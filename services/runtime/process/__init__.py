"""A service's process: its settings, logs, metrics, certificates and its life from start to stop."""
