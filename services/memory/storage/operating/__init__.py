"""What those who operate ask a store for."""
