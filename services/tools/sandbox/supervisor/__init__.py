"""The supervisor: a small process between the service and one command, which kills whatever the command has started.

Standard library only: every command starts by importing these files.
"""
