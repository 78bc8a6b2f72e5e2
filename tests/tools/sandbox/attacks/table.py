"""The attempts of a command, and how each must end in each tier. An ALLOWED attempt states the reason.

Code runs in attempts.py: `v` are the victims, `n` the numbers of system calls, `call` makes one.
"""

from dataclasses import dataclass
from typing import Literal

from services.tools.sandbox.supervisor.syscalls import DENIED

Ending = Literal["DENIED", "LIMITED", "ALLOWED"]


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt. DENIED in every tier unless it says otherwise."""

    name: str
    code: str
    process: Ending = "DENIED"
    bubblewrap: Ending = "DENIED"
    reason: str = ""
    """Why it is allowed; given for every allowed attempt."""


STAT = "Landlock does not restrict stat: a command can tell that a path exists, not what is in it"
CONFINED_TOO = "what it runs is under the same confinement, for good"

FILES = (
    Attempt("read a file", "open(v.secret).read()"),
    Attempt("write a file", "open(v.secret, 'a')"),
    Attempt("truncate a file", "os.truncate(v.secret, 0)"),
    Attempt("write a file that may be read", "open(v.shown).read() and open(v.shown, 'a')"),
    Attempt("truncate a file that may be read", "os.truncate(v.shown, 0)"),
    Attempt("truncate a file that is opened to be read", "os.open(v.shown, os.O_RDONLY | os.O_TRUNC)"),
    Attempt("truncate a file that is opened for nothing", "os.open(v.shown, os.O_ACCMODE | os.O_TRUNC)"),
    Attempt("make a file", "open(v.outside + '/new', 'w')"),
    Attempt("make a folder", "os.mkdir(v.outside + '/new')"),
    Attempt("remove a file", "os.unlink(v.secret)"),
    Attempt("take a file", "os.rename(v.secret, 'taken')"),
    Attempt("put a file", "open('put', 'w').close(); os.rename('put', v.outside + '/put')"),
    Attempt("list a folder", "os.listdir(v.outside)"),
    Attempt("tell whether a file exists", "os.stat(v.secret)", process="ALLOWED", reason=STAT),
    Attempt("go into a folder", "os.chdir(v.outside); open('secret')"),
    Attempt("read over a link", "os.symlink(v.secret, 'to_read'); open('to_read')"),
    Attempt("write over a link", "os.symlink(v.secret, 'to_write'); open('to_write', 'a')"),
    Attempt("read over a linked folder", "os.symlink(v.outside, 'linked'); open('linked/secret')"),
    Attempt("hard link into the workspace", "os.link(v.secret, 'hard')"),
    Attempt("hard link out of the workspace", "open('a', 'w').close(); os.link('a', v.outside + '/hard')"),
    Attempt("dots", "open('../outside/secret')"),
    Attempt("many dots", "open('../' * 60 + v.secret[1:])"),
    Attempt("dots behind a folder", "os.makedirs('x/y'); open('x/y/../../../outside/secret')"),
    Attempt("percent-encoded dots", "open('%2e%2e/outside/secret')"),
    Attempt("overlong dots", r"os.open(b'\xc0\xae\xc0\xae/outside/secret', os.O_RDONLY)"),
    Attempt("backslashes", r"open('..\\outside\\secret')"),
    Attempt("over /proc/self/root", "open('/proc/self/root' + v.secret)"),
    Attempt("over /proc/self/cwd", "open('/proc/self/cwd/../outside/secret')"),
    Attempt("over the first process's root", "open('/proc/1/root' + v.secret)"),
    Attempt("from a handle of /", "os.open(v.secret[1:], os.O_RDONLY, dir_fd=os.open('/', os.O_PATH))"),
    Attempt("reopen a path handle", "open(f'/proc/self/fd/{os.open(v.secret, os.O_PATH)}')"),
    Attempt("name to handle", "call(n['name_to_handle_at'], -100, v.secret.encode(), bytes(64), bytes(8), 0)"),
    Attempt("open by handle", "call(n['open_by_handle_at'], -100, bytes(64), 0)"),
    Attempt(
        "swap a folder for a link while opening",
        """
os.mkdir('real'); open('real/secret', 'w').close(); os.symlink(v.outside, 'fake'); os.mkdir('swapped')
stop = time.monotonic() + 0.5
def swap():
    while time.monotonic() < stop:
        for name in ('real', 'fake'):
            try: os.rename('swapped', 'away'); os.rename(name, 'swapped'); os.rename('away', name)
            except OSError: pass
thread = threading.Thread(target=swap); thread.start()
try:
    while time.monotonic() < stop:
        try: assert 'nobody' not in open('swapped/secret').read()
        except OSError: pass
finally: thread.join()
refuse('never read')
""",
    ),
    Attempt(
        "swap a file for a link while its mode changes",
        """
os.symlink(v.secret, 'bad'); open('good', 'w').close()
stop = time.monotonic() + 0.5
def swap():
    while time.monotonic() < stop:
        for name in ('bad', 'good'):
            try: os.unlink('mode')
            except OSError: pass
            os.link(name, 'mode', follow_symlinks=False)
thread = threading.Thread(target=swap); thread.start()
while time.monotonic() < stop:
    try: os.chmod('mode', 0o666)
    except OSError: pass
thread.join()
refuse('the victims are looked at afterwards')
""",
    ),
    Attempt("change a mode", "os.chmod(v.secret, 0o777)"),
    Attempt("change a mode over a link", "os.symlink(v.secret, 'mode_link'); os.chmod('mode_link', 0o777)"),
    Attempt("change a mode from a handle of /", "os.chmod(v.secret[1:], 0o777, dir_fd=os.open('/', os.O_PATH))"),
    Attempt(
        "change a mode over a descriptor's name", "os.chmod(f'/proc/self/fd/{os.open(v.secret, os.O_PATH)}', 0o777)"
    ),
    Attempt("change an owner", "os.chown(v.secret, os.getuid(), os.getgid())"),
    Attempt("change times", "os.utime(v.secret, (1, 1))"),
    Attempt("change times over a link", "os.symlink(v.secret, 'time_link'); os.utime('time_link', (1, 1))"),
    Attempt("set an extended attribute", "os.setxattr(v.secret, 'user.x', b'1')"),
    Attempt("set an access list", "os.setxattr(v.secret, 'system.posix_acl_access', b'1')"),
    Attempt("watch a folder with fanotify", "call(n['fanotify_init'], 0, 0)"),
    Attempt("read the machine's passwords", "open('/etc/shadow')"),
    Attempt("write into the system", "open('/usr/bin/headrace-test', 'w')"),
    Attempt("write into the service's interpreter", "open(os.__file__, 'a')"),
    Attempt(
        "set-user-id",
        """
open('s', 'w').close()
os.chmod('s', 0o4755)
if not os.stat('s').st_mode & 0o6000: raise Limited('the other bits are set')
""",
        process="LIMITED",
        bubblewrap="LIMITED",
    ),
    Attempt("set-user-id by descriptor", "os.fchmod(os.open('f', os.O_CREAT), 0o4755)"),
    Attempt("set-user-id from the start", "os.open('g', os.O_CREAT | os.O_WRONLY, 0o4755)"),
    Attempt("set-user-id without a name", "os.open('.', os.O_TMPFILE | os.O_WRONLY, 0o4755)"),
    Attempt("set-user-id by openat2", "call(437, -100, b'h', struct.pack('3Q', os.O_CREAT | 1, 0o4755, 0), 24)"),
)

DEVICES = (
    Attempt("the terminal", "os.open('/dev/tty', os.O_RDWR)"),
    Attempt("push input to the terminal", "fcntl.ioctl(os.open('/dev/tty', os.O_RDWR), 0x5412, b'x')"),
    Attempt("another terminal", "os.open('/dev/pts/0', os.O_RDWR)"),
    Attempt("a new terminal", "os.open('/dev/ptmx', os.O_RDWR)"),
    Attempt("memory", "os.open('/dev/mem', os.O_RDONLY)"),
    Attempt("the disk", "os.open('/dev/vda', os.O_RDONLY)"),
    Attempt("virtual machines", "os.open('/dev/kvm', os.O_RDWR)"),
    Attempt("tunnels", "os.open('/dev/net/tun', os.O_RDWR)"),
    Attempt("fuse", "os.open('/dev/fuse', os.O_RDWR)"),
    Attempt("kernel messages", "os.open('/dev/kmsg', os.O_RDONLY)"),
    Attempt(
        "shared memory",
        "open('/dev/shm/headrace-test', 'w')",
        bubblewrap="ALLOWED",
        reason="the namespace has one of its own, of 64 MiB, which goes with the command",
    ),
    Attempt("make a device", "os.mknod('device', 0o020600, os.makedev(1, 1))"),
    Attempt("kernel settings", "open('/proc/sys/kernel/core_pattern', 'w')"),
    Attempt("sysrq", "open('/proc/sysrq-trigger', 'w')"),
    Attempt("control groups", "os.listdir('/sys/fs/cgroup')"),
)

PROCESSES = (
    Attempt("list processes", "os.listdir('/proc')"),
    Attempt("a process's environment", "open(f'/proc/{v.pid}/environ').read()"),
    Attempt("a process's memory", "os.open(f'/proc/{v.pid}/mem', os.O_RDWR)"),
    Attempt("a process's command line", "open(f'/proc/{v.pid}/cmdline')"),
    Attempt("a process's files", "os.listdir(f'/proc/{v.pid}/fd')"),
    Attempt("over a process's root", "open(f'/proc/{v.pid}/root' + v.secret)"),
    Attempt("over a process's folder", "os.listdir(f'/proc/{v.pid}/cwd/')"),
    Attempt("the supervisor's environment", "open(f'/proc/{os.getppid()}/environ')"),
    Attempt("the supervisor's memory", "os.open(f'/proc/{os.getppid()}/mem', os.O_RDWR)"),
    Attempt("the first process's environment", "open('/proc/1/environ')"),
    Attempt("trace a process", "call(n['ptrace'], 16, v.pid, 0, 0)"),
    Attempt("seize a process", "call(n['ptrace'], 0x4206, v.pid, 0, 0)"),
    Attempt("be traced", "call(n['ptrace'], 0, 0, 0, 0)"),
    Attempt("read a process's memory by call", "call(n['process_vm_readv'], v.pid, bytes(16), 1, bytes(16), 1, 0)"),
    Attempt("write a process's memory by call", "call(n['process_vm_writev'], v.pid, bytes(16), 1, bytes(16), 1, 0)"),
    Attempt("signal a process", "os.kill(v.pid, signal.SIGTERM)"),
    Attempt("signal a group", "os.killpg(os.getpgid(v.pid), 0)"),
    Attempt("signal a thread", "call(n['tgkill'], v.pid, v.pid, 0)"),
    Attempt("signal by handle", "signal.pidfd_send_signal(os.pidfd_open(v.pid), signal.SIGTERM)"),
    Attempt("signal everyone", "os.kill(-1, 0)"),
    Attempt("signal the first process", "os.kill(1, 0)"),
    Attempt("steal a descriptor", "call(n['pidfd_getfd'], os.pidfd_open(v.pid), 1, 0)"),
    Attempt("a process's limits", "resource.prlimit(v.pid, resource.RLIMIT_NOFILE, (9, 9))"),
    Attempt("a process's priority", "os.setpriority(os.PRIO_PROCESS, v.pid, 19)"),
    Attempt("a user's priority", "os.setpriority(os.PRIO_USER, os.getuid(), 19)"),
    Attempt("a process's processors", "os.sched_setaffinity(v.pid, {0})"),
    Attempt("a process's scheduler", "os.sched_setscheduler(v.pid, os.SCHED_IDLE, os.sched_param(0))"),
    Attempt("real-time priority", "os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))"),
    Attempt("a process's disk priority", "call(n['ioprio_set'], 1, v.pid, 7)"),
    Attempt("compare processes", "call(n['kcmp'], os.getpid(), v.pid, 0, 0, 0)"),
    Attempt("a process's pages", "call(n['process_madvise'], os.pidfd_open(v.pid), bytes(16), 1, 21, 0)"),
    Attempt("escape the killer of memory hogs", "open('/proc/self/oom_score_adj', 'w').write('-1000')"),
    Attempt(
        "find an inherited socket",
        """
for fd in range(3, 512):
    try: assert not stat.S_ISSOCK(os.fstat(fd).st_mode), fd
    except OSError: pass
refuse('none')
""",
    ),
    Attempt(
        "find a variable of the service",
        "if set(os.environ) <= {'PATH', 'HOME', 'TMPDIR', 'LANG', 'LC_CTYPE'}: refuse('none')",
    ),
    Attempt("lay down no_new_privs", "if call(n['prctl'], 39, 0, 0, 0, 0) == 1: refuse('nobody can')"),
    Attempt(
        "get privileges back", "call(n['capset'], struct.pack('Ii', 0x20080522, 0), struct.pack('6I', *[1 << 21] * 6))"
    ),
    Attempt("raise its limits", "call(n['prlimit64'], 0, 7, struct.pack('2Q', 1 << 16, 1 << 16), 0)"),
    Attempt("join a group", "os.setgroups([0])"),
    Attempt(
        "run from memory",
        """
fd = os.memfd_create('m')
os.write(fd, open('/bin/true', 'rb').read())
pid = os.fork()
if pid == 0: os.execve(fd, ['true'], {})
assert os.waitpid(pid, 0)[1] == 0
""",
        process="ALLOWED",
        bubblewrap="ALLOWED",
        reason=CONFINED_TOO,
    ),
    Attempt(
        "executable memory", "mmap.mmap(-1, 4096, prot=7)", process="ALLOWED", bubblewrap="ALLOWED", reason=CONFINED_TOO
    ),
)

NETWORK = (
    Attempt("TCP", "socket.create_connection(('127.0.0.1', v.tcp_port), 2)"),
    Attempt("TCP over IPv6", "socket.socket(socket.AF_INET6).connect(('::1', v.tcp_port))"),
    Attempt("listen", "socket.socket().bind(('127.0.0.1', 0))"),
    Attempt("UDP", "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', v.udp_port))"),
    Attempt("ICMP", "socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP)"),
    Attempt("raw packets", "socket.socket(socket.AF_INET, socket.SOCK_RAW, 255)"),
    Attempt("link packets", "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)"),
    Attempt("multipath TCP", "socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)"),
    Attempt("SCTP", "socket.socket(socket.AF_INET, socket.SOCK_STREAM, 132)"),
    Attempt("a Unix socket", "socket.socket(socket.AF_UNIX).connect(v.socket_path)"),
    Attempt("an abstract Unix socket", "socket.socket(socket.AF_UNIX).connect(v.abstract_name)"),
    Attempt(
        "a pair that is turned elsewhere",
        "socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].sendto(b'x', v.socket_path)",
    ),
    Attempt("a stream pair that is turned elsewhere", "socket.socketpair()[0].connect(v.socket_path)"),
    Attempt("vsock", "socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)"),
    Attempt("netlink", "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)"),
    Attempt("audit", "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 9)"),
    Attempt("kernel cryptography", "socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET)"),
    Attempt("Bluetooth", "socket.socket(31, socket.SOCK_RAW, 1)"),
    Attempt("XDP", "socket.socket(44, socket.SOCK_RAW)"),
)

KERNEL = (
    *(Attempt(f"a namespace ({flag:#x})", f"call(n['unshare'], {flag})")
      for flag in (0x80, 0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000)),
    Attempt("clone with a namespace", "call(n['clone'], 0x10000011, 0, 0, 0, 0)"),
    Attempt("clone3", "call(n['clone3'], bytes(88), 88)"),
    Attempt("join a namespace", "call(n['setns'], os.pidfd_open(v.pid), 0x40000000)"),
    Attempt("mount", "call(n['mount'], b'none', b'.', b'tmpfs', 0, 0)"),
    Attempt("bind mount", "call(n['mount'], v.outside.encode(), b'.', 0, 4096, 0)"),
    Attempt("change the root", "os.chroot('.')"),
    Attempt("io_uring", "call(n['io_uring_setup'], 1, bytes(120))"),
    Attempt("userfaultfd", "call(n['userfaultfd'], 1)"),
    Attempt("load BPF", "call(n['bpf'], 0, bytes(128), 128)"),
    Attempt("watch with perf", "call(n['perf_event_open'], bytes(128), 0, -1, -1, 0)"),
    Attempt("the user's keyring", "call(n['keyctl'], 0, -4, 0, 0, 0)"),
    Attempt("System V shared memory", "call(n['shmget'], 0, 4096, 0o1600)"),
    Attempt("POSIX message queue", "call(n['mq_open'], b'headrace-test', 0o102, 0o600, 0)"),
    Attempt("a call of the future", "call(900)"),
    Attempt("an x32 call", "call(0x40000000 + 39)"),
    # Other machines have neither of these two, and leave them out.
    Attempt("a 32-bit call", "code = mmap.mmap(-1, 4096, prot=7); code.write(bytes.fromhex('b814000000cd80c3')); "
            "ctypes.CFUNCTYPE(ctypes.c_long)(ctypes.addressof(ctypes.c_char.from_buffer(code)))()"),
)  # fmt: skip

EVERY_DENIED_CALL = tuple(
    Attempt(f"call {name} with nothing", f"call(n[{name!r}], 0, 0, 0, 0, 0)")
    for calls in DENIED.values()
    for name in calls
)

ATTEMPTS = (*FILES, *DEVICES, *PROCESSES, *NETWORK, *KERNEL, *EVERY_DENIED_CALL)
