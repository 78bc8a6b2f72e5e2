"""Writes the generated regions of docs/reference from the code.

A page is written by hand, but for what stands between `<!-- generated: name arguments -->` and `<!-- end -->`: that is
what the function of that name in `REGIONS` returns. `make gen` writes it, tests/docs holds it against the code.
"""
