"""Two of each service on one machine, killed, cut off and restarted under load; tests/cluster asks for it."""
