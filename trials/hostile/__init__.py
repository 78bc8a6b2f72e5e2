"""Attacks of peers without a credential, during an honest stream: the cost of each."""
