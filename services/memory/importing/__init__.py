"""Import of other programs' logs: V3, V3.1, and Blade-style entries.

Each format has its reader; all write one new log through LogBuilder.
"""
