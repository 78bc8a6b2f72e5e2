"""Lists system calls that a command may not make.

Numbers: arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h of Linux 6.18.
"""

from __future__ import annotations

from errno import EACCES, ENOSYS, ENOTSUP, EPERM

Numbers = tuple[int, int | None]
"""Call numbers on x86_64 and aarch64; None if the call does not exist."""

LAST_KNOWN = 469
"""Calls after file_setattr (Linux 6.17), and the x32 variants (from 2^30), do not exist for a command."""

DENIED: dict[int, dict[str, Numbers]] = {
    # The network, and sockets in the file system: socketpair alone remains (see seccomp.py).
    EACCES: {
        "socket": (41, 198),
        "connect": (42, 203),
        "bind": (49, 200),
        # System V and POSIX IPC have their own names, outside Landlock's reach.
        "shmget": (29, 194),
        "shmat": (30, 196),
        "semget": (64, 190),
        "msgget": (68, 186),
        "mq_open": (240, 180),
    },
    EPERM: {
        # Other processes.
        "ptrace": (101, 117),
        "process_vm_readv": (310, 270),
        "process_vm_writev": (311, 271),
        "process_madvise": (440, 440),
        "kcmp": (312, 272),
        "pidfd_getfd": (438, 438),
        "pidfd_send_signal": (424, 424),
        "migrate_pages": (256, 238),
        "move_pages": (279, 239),
        "sched_setscheduler": (144, 119),
        "sched_setparam": (142, 118),
        "sched_setattr": (314, 274),
        "ioprio_set": (251, 30),
        # Large attack surface in the kernel, of no use to a command.
        "add_key": (248, 217),
        "request_key": (249, 218),
        "keyctl": (250, 219),
        "userfaultfd": (323, 282),
        "bpf": (321, 280),
        "perf_event_open": (298, 241),
        "memfd_secret": (447, 447),
        "fanotify_init": (300, 262),
        "fanotify_mark": (301, 263),
        "name_to_handle_at": (303, 264),
        "open_by_handle_at": (304, 265),
        "lookup_dcookie": (212, 18),
        "lsm_set_self_attr": (460, 460),
        # Namespaces and mounts (clone's flags: see seccomp.py).
        "unshare": (272, 97),
        "setns": (308, 268),
        "mount": (165, 40),
        "umount2": (166, 39),
        "pivot_root": (155, 41),
        "chroot": (161, 51),
        "move_mount": (429, 429),
        "open_tree": (428, 428),
        "open_tree_attr": (467, 467),
        "fsopen": (430, 430),
        "fsconfig": (431, 431),
        "fsmount": (432, 432),
        "fspick": (433, 433),
        "mount_setattr": (442, 442),
        "statmount": (457, 457),
        "listmount": (458, 458),
        # The machine.
        "kexec_load": (246, 104),
        "kexec_file_load": (320, 294),
        "init_module": (175, 105),
        "finit_module": (313, 273),
        "delete_module": (176, 106),
        "reboot": (169, 142),
        "swapon": (167, 224),
        "swapoff": (168, 225),
        "acct": (163, 89),
        "settimeofday": (164, 170),
        "clock_settime": (227, 112),
        "adjtimex": (159, 171),
        "clock_adjtime": (305, 266),
        "sethostname": (170, 161),
        "setdomainname": (171, 162),
        "iopl": (172, None),
        "ioperm": (173, None),
        "modify_ldt": (154, None),
        "quotactl": (179, 60),
        "quotactl_fd": (443, 443),
        "syslog": (103, 116),
        "vhangup": (153, 58),
        # Landlock does not restrict owners. fchown remains: it needs a file that Landlock let the command open.
        "chown": (92, None),
        "lchown": (94, None),
        "fchownat": (260, 54),
        "file_setattr": (469, 469),
    },
    # Access lists are set through attributes. cp and tar continue if a file system has none.
    ENOTSUP: {
        "setxattr": (188, 5),
        "lsetxattr": (189, 6),
        "setxattrat": (463, 463),
        "removexattr": (197, 14),
        "lremovexattr": (198, 15),
        "removexattrat": (466, 466),
    },
    ENOSYS: {
        # Forerunners of utimensat, which libc has long been using instead.
        "utime": (132, None),
        "utimes": (235, None),
        "futimesat": (261, None),
        # Its flags lie in memory, which a filter cannot read; libc falls back to clone.
        "clone3": (435, 435),
        # Its mode lies in memory, too.
        "openat2": (437, 437),
        # They tell of paths and processes that a command may not open: names of other chats' folders, for example.
        # Programs that know them fall back to looking again and again.
        "inotify_init": (253, None),
        "inotify_init1": (294, 26),
        "inotify_add_watch": (254, 27),
        "pidfd_open": (434, 434),
        # Programs that know io_uring fall back to ordinary calls.
        "io_uring_setup": (425, 425),
        "io_uring_enter": (426, 426),
        "io_uring_register": (427, 427),
    },
}

ASKED: dict[str, Numbers] = {
    # change_attributes
    "chmod": (90, None),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    # Population, and clone when it makes no namespace
    "fork": (57, None),
    "vfork": (58, None),
}
"""Calls on which the supervisor decides (notifications.py)."""

SECCOMP: Numbers = (317, 277)
CLONE: Numbers = (56, 220)
SOCKETPAIR: Numbers = (53, 199)
SETTING_MODES: dict[str, tuple[Numbers, int, int | None]] = {
    "fchmod": ((91, 52), 1, None),
    "creat": ((85, None), 1, None),
    "mknod": ((133, None), 1, None),
    "mknodat": ((259, 33), 2, None),
    "open": ((2, None), 2, 1),
    "openat": ((257, 56), 3, 2),
}
"""Calls that could make a file set-user-id, with the arguments that hold the mode and the open flags."""

TRUNCATE: Numbers = (76, 45)
OPENING: dict[str, tuple[Numbers, int]] = {"open": ((2, None), 1), "openat": ((257, 56), 2)}
"""Calls that could truncate a file opened for reading, with the argument that holds the flags."""

UTIMENSAT: Numbers = (280, 88)
PRLIMIT64: Numbers = (302, 261)
SCHED_SETAFFINITY: Numbers = (203, 122)
SETPRIORITY: Numbers = (141, 140)
KILL: Numbers = (62, 129)
SIGNALLING: tuple[Numbers, ...] = (KILL, (200, 130), (234, 131), (129, 138), (297, 240))
"""Calls that name a process in their first argument: kill, tkill, tgkill, rt_sigqueueinfo, rt_tgsigqueueinfo."""
