"""Two replicas of each service on one machine, killed, cut off and restarted under load; used by tests/cluster."""
