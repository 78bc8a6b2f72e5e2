"""Runs commands that nobody trusts.

service (supervised_command.py) → supervisor/ → the command (confinement/). The tier `bubblewrap` puts the supervisor
and all below it into namespaces (bubblewrap.py). The supervisor kills: it notices when the service has gone, keeps the
time, and sweeps up daemons (sweep.py).
"""
