"""Import of other programs' logs: V3, V3.1, and Blade-style entries.

Each form has its reader, and all write one new log through LogBuilder.
"""
