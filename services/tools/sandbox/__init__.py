"""Running commands that nobody trusts.

service (command_run.py, supervised_command.py) → supervisor/ (a small interpreter without site packages) → the command
(confinement/). In the tier `bubblewrap` the supervisor and all below it are in namespaces of their own (bubblewrap.py).

The supervisor is the one that kills: it notices when the service has gone or has closed their link, keeps the time, and
as the subreaper of everything below it leaves nothing behind, daemons included (sweep.py). The command itself is
confined in layers between fork and exec: confine.py holds their order, landlock.py the files, seccomp.py the system
calls, seccomp_notify.py those that the supervisor decides. selftest.py finds the strongest tier by trying.
"""
