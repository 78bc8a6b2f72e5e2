"""Runs commands that nobody trusts.

service (command_run.py, supervised_command.py) → supervisor/ → the command (confinement/). In the tier `bubblewrap` the
supervisor and all below it are in namespaces of their own (bubblewrap.py).

The supervisor kills: it notices when the service has gone or has closed their link, keeps the time, and sweeps up
daemons (sweep.py). The command is confined in layers between fork and exec, in the order of confine.py. selftest.py
finds the strongest tier by trying.
"""
