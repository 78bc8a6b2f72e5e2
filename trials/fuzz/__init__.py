"""Fuzz targets: each module has `check(data)`, which raises if its promise is broken, and seeds in trials/fuzz/seeds.

`python -m trials fuzz` searches with atheris; tests/trials/test_fuzz.py runs the seeds, which include every
input that has ever failed.
"""
