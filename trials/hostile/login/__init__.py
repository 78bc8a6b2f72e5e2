"""Attacks with an ordinary key of one tenant on another tenant and on a colleague: their cost and their success."""
