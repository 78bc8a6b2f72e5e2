"""Every system call of every service fails in turn, under a fixed workload, and is judged by what must hold.

`python -m trials faults` does it to all of them, tests/trials/test_faults.py to a sample.
"""
