"""Runs commands that nobody trusts.

The service (command.py) starts a supervisor (supervisor/launch.py), which starts the command (supervisor/confine.py).
The tier `bubblewrap` puts the supervisor and all below it into namespaces (bubblewrap.py). The supervisor kills: it
notices when the service has gone, keeps the time, and sweeps up daemons (sweep.py).
"""
