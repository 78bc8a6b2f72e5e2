"""Evaluation: runs the same cases with several agents, checks the results and compares them."""
