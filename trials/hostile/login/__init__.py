"""Attacks of an ordinary key of one tenant on another tenant and on a colleague: what each costs, and what it gets."""
