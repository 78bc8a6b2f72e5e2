"""Cost of a run and of a delta at each entrance of the suite, over all processes, compared with peers."""
