"""Encryption of stored data, with a data key per tenant, wrapped by a master key."""
