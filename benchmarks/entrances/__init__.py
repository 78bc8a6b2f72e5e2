"""What a run and a delta cost at each entrance of the suite, all processes counted, beside peers in the same run."""
