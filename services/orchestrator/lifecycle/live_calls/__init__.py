"""RPCs about live runs: submits, steers, lists."""
