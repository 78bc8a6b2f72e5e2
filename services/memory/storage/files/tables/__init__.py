"""Gates and leases in the index file."""
