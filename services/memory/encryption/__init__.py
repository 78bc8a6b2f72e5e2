"""Encryption of what is stored, with a data key for each tenant that a master key wraps."""
