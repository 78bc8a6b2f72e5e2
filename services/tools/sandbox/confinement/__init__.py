"""Confining a forked process: Landlock, seccomp, capabilities and limits, as a policy says.

Standard library only: every command starts by importing these files.
"""
