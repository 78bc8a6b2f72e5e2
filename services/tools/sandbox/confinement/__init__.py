"""From a fork of the supervisor to the confined command: Landlock, seccomp, limits, and the policy that says which.

Standard library only: every command starts by importing these files.
"""
