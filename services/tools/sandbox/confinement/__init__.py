"""Confines a forked process as a policy says.

Standard library only: every command starts by importing these files.
"""
