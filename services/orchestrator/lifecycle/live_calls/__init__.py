"""What people ask of runs that are live: submits, messages, lists."""
