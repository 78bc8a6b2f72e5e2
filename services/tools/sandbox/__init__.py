"""Runs untrusted commands.

The service (command.py) starts a supervisor (supervisor/launch.py), which starts the command (supervisor/confine.py).
The tier `bubblewrap` puts the supervisor and all processes below it into namespaces (bubblewrap.py). The supervisor
does the killing: it notices when the service is gone, enforces the time, and removes daemons (sweep.py).
"""
