"""Makes every system call of every service fail in turn, under a fixed workload, and checks the invariants.

`python -m trials faults` tries all of them, tests/trials/test_faults.py a sample.
"""
