"""Commands for recorded runs and evaluations; each is in the module of the same name."""
