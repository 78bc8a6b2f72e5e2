"""How the tasks of a plan are gone through: one file a strategy."""
