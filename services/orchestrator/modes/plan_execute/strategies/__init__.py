"""The order in which the tasks of a plan run, one file for each strategy."""
