"""The environment of simulated services: an event loop with a clock that jumps, killable processes, a network
and a disk.
"""
