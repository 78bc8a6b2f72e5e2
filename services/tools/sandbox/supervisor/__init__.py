"""Stands as a small process between the service and one command.

Standard library only: every command starts by importing these files.
"""
