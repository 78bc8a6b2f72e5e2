"""Generates regions of docs/reference from the code.

Pages are written by hand, except for the text between `<!-- generated: name arguments -->` and `<!-- end -->`,
which is the result of the function with that name in `REGIONS`. `make gen` writes it; tests/docs compares it
with the code.
"""
