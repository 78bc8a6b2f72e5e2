"""Running commands that nobody trusts.

service (process.py) → supervisor (launch.py, a small interpreter without site packages) → the command (become.py).

The supervisor is the one that kills: it notices when the service has gone or has lost interest, keeps the time,
and as the subreaper of everything below it leaves nothing behind, daemons included. The command itself is confined
in layers between fork and exec: become.py holds their order, landlock.py the files, seccomp.py the system calls,
modes.py the one call that the supervisor does for it.
"""
