"""Addresses and allow lists of the network."""
