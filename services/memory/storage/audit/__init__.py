"""The audit log of each tenant."""
