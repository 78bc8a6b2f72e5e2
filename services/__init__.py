"""The servers of the suite. Each package but runtime is one service; services talk through stubs only."""
