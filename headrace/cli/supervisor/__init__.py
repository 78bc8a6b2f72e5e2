"""Running all services on this machine: their settings, processes, logs and end."""
