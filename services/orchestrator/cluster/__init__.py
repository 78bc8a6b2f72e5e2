"""Several orchestrators: runs taken over, calls passed on to the owner of a run."""
