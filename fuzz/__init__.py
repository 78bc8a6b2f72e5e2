"""Fuzz targets: each module has `check(data)`, which raises when its promise is broken, and seeds in fuzz/seeds.

`make fuzz` searches with atheris; tests/test_fuzz.py runs the seeds, to which every input that failed is added.
"""
