"""Running commands that nobody trusts.

service (process.py, supervised.py) → supervisor (launch.py, a small interpreter without site packages) → the command
(become.py). In the tier `bubblewrap` the supervisor and all below it are in namespaces of their own (bubblewrap.py).

The supervisor is the one that kills: it notices when the service has gone or has lost interest, keeps the time,
and as the subreaper of everything below it leaves nothing behind, daemons included (sweeping.py). The command itself is
confined in layers between fork and exec: become.py holds their order, landlock.py the files, seccomp.py the system
calls, questions.py those that the supervisor is asked about. selftest.py finds the tier by trying.
"""
