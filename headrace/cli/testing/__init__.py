"""Commands about recorded runs, and evaluations: each of the module of that name."""
