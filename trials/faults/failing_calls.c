/* Makes one system call of one service fail: loaded before libc (LD_PRELOAD), told what to fail by a file in memory.
 *
 * Only calls count that touch what a service owns: paths below the folders that the file names, and sockets that have an
 * address. They count while the file is armed, over restarts of the service; children of a service are left alone.
 * Of equal reads in a row (pread of one file with one size) the 1st, 2nd, 4th, 8th… count: SQLite reads a log of any
 * length frame by frame in one loop, and what follows has the same number however long the loop was.
 * calls.py has the same layout and order of names. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { FOLDERS = 2, SERVICES = 5, WHERE = 256 };
enum { SHORT = -1, NONE = 0 };
enum call { OPEN, OPENDIR, READ, WRITE, FSYNC, FDATASYNC, RENAME, LINK, UNLINK, MKDIR, FTRUNCATE, MMAP, SOCKET, CONNECT,
            ACCEPT, RECV, SEND, CALLS };

static const char *const services[SERVICES] = {"memory", "orchestrator", "llm_gateway", "tools", "facade"};

struct control {
  int32_t is_armed;
  int32_t service; /* whose call fails; none when negative */
  int32_t call;
  int32_t first, last; /* which of these calls */
  int32_t error; /* an errno, or SHORT */
  int32_t fired;
  int32_t counts[SERVICES][CALLS];
  char folders[FOLDERS][WHERE];
  char where[WHERE]; /* what the first failed call was about */
};

static struct control *control;
static int32_t self = -1; /* our service */
static pid_t pid;

#define REAL(name) ({ static __typeof__(name) *real; if (!real) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name); real; })

/* Which service this process is: of what Python runs as `-m services.NAME`. */
static void find_self(void) {
  char line[4096];
  int fd = REAL(open)("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
  ssize_t size = fd < 0 ? 0 : REAL(read)(fd, line, sizeof line - 1);
  if (fd >= 0) close(fd);
  if (size <= 0) return;
  line[size] = 0;
  for (char *word = line; word < line + size; word += strlen(word) + 1)
    if (!strcmp(word, "-m"))
      for (int32_t service = 0; service < SERVICES; service++) {
        const char *module = word + 3;
        if (!strncmp(module, "services.", 9) && !strcmp(module + 9, services[service])) self = service;
      }
}

__attribute__((constructor)) static void load(void) {
  const char *path = getenv("LD_FAULTS");
  if (!path) return;
  find_self();
  if (self < 0) return;
  int fd = REAL(open)(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return;
  void *mapped = REAL(mmap)(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  pid = getpid();
  if (mapped != MAP_FAILED) control = mapped;
}

static int is_counting(void) { return control && control->is_armed && getpid() == pid; }

static int is_below(const char *path) {
  for (int folder = 0; folder < FOLDERS; folder++) {
    size_t size = strlen(control->folders[folder]);
    if (size && !strncmp(path, control->folders[folder], size) && (path[size] == '/' || !path[size])) return 1;
  }
  return 0;
}

/* Count a call about `where`, unless it repeats another; whether it fails, and with what. */
static int32_t count_unless(int is_repeated, enum call call, const char *where) {
  int32_t number = __atomic_add_fetch(&control->counts[self][call], is_repeated ? 0 : 1, __ATOMIC_SEQ_CST);
  if (control->service != self || control->call != (int32_t)call) return NONE;
  if (number < control->first || number > control->last) return NONE;
  if (is_repeated && control->first == control->last) return NONE;
  if (__atomic_add_fetch(&control->fired, 1, __ATOMIC_SEQ_CST) == 1) snprintf(control->where, WHERE, "%s", where);
  return control->error;
}

static int32_t count(enum call call, const char *where) { return count_unless(0, call, where); }

static int read_link(const char *path, char *target) {
  ssize_t size = readlink(path, target, PATH_MAX - 1);
  if (size < 0) return 0;
  target[size] = 0;
  return 1;
}

static int find_path(int fd, char *target) {
  char name[64];
  snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
  return read_link(name, target);
}

/* What to do to a call about a path: NONE, or its error. */
static int32_t judge_path(enum call call, int folder_fd, const char *path) {
  int before = errno;
  int32_t error = NONE;
  char whole[2 * PATH_MAX];
  if (!is_counting() || !path) return NONE;
  if (path[0] == '/') snprintf(whole, sizeof whole, "%s", path);
  else {
    char folder[PATH_MAX];
    if (!(folder_fd == AT_FDCWD ? getcwd(folder, sizeof folder) != NULL : find_path(folder_fd, folder))) folder[0] = 0;
    snprintf(whole, sizeof whole, "%s/%s", folder, path);
  }
  if (is_below(whole)) error = count(call, whole);
  errno = before;
  return error;
}

/* The same for a file that is open. */
static int32_t judge_file(enum call call, int fd) {
  int before = errno;
  int32_t error = NONE;
  char path[PATH_MAX];
  if (is_counting() && find_path(fd, path) && is_below(path)) error = count(call, path);
  errno = before;
  return error;
}

/* The same for a read that knows its place, of which many equal ones may follow each other. */
static int32_t judge_read_at(int fd, size_t size) {
  static __thread char last_path[PATH_MAX];
  static __thread size_t last_size, times;
  int before = errno;
  int32_t error = NONE;
  char path[PATH_MAX];
  if (is_counting() && find_path(fd, path) && is_below(path)) {
    times = size == last_size && !strcmp(path, last_path) ? times + 1 : 1;
    last_size = size;
    strcpy(last_path, path);
    error = count_unless((times & (times - 1)) != 0, READ, path);
  }
  errno = before;
  return error;
}

/* The same for a socket that has an address, or whose peer has; pairs have none. */
static int32_t judge_socket(enum call call, int fd) {
  int before = errno;
  int32_t error = NONE;
  struct sockaddr_storage own, peer;
  socklen_t own_size = sizeof own, peer_size = sizeof peer;
  if (is_counting()) {
    int has_own = !getsockname(fd, (struct sockaddr *)&own, &own_size) && own_size > sizeof(sa_family_t);
    int has_peer = !getpeername(fd, (struct sockaddr *)&peer, &peer_size) && peer_size > sizeof(sa_family_t);
    if (has_own || has_peer) error = count(call, "a socket");
  }
  errno = before;
  return error;
}

static int32_t judge_transfer(enum call of_file, enum call of_socket, int fd) {
  int before = errno;
  struct stat status;
  if (!is_counting()) return NONE;
  int is_socket = !fstat(fd, &status) && S_ISSOCK(status.st_mode);
  errno = before;
  return is_socket ? judge_socket(of_socket, fd) : judge_file(of_file, fd);
}

#define FAIL(error, value) do { int32_t code_ = (error); if (code_ > 0) { errno = code_; return value; } } while (0)
#define HALF(size) ((size) > 1 ? (size) / 2 : (size))
#define MODE(flags) ({ mode_t mode_ = 0; if ((flags) & (O_CREAT | __O_TMPFILE)) { va_list rest; va_start(rest, flags); \
                        mode_ = va_arg(rest, mode_t); va_end(rest); } mode_; })

int open(const char *path, int flags, ...) {
  mode_t mode = MODE(flags);
  FAIL(judge_path(OPEN, AT_FDCWD, path), -1);
  return REAL(open)(path, flags, mode);
}
int open64(const char *path, int flags, ...) {
  mode_t mode = MODE(flags);
  FAIL(judge_path(OPEN, AT_FDCWD, path), -1);
  return REAL(open64)(path, flags, mode);
}
int openat(int folder, const char *path, int flags, ...) {
  mode_t mode = MODE(flags);
  FAIL(judge_path(OPEN, folder, path), -1);
  return REAL(openat)(folder, path, flags, mode);
}
int openat64(int folder, const char *path, int flags, ...) {
  mode_t mode = MODE(flags);
  FAIL(judge_path(OPEN, folder, path), -1);
  return REAL(openat64)(folder, path, flags, mode);
}
/* openat2 has no function of its own. */
long syscall(long number, ...) {
  va_list rest;
  va_start(rest, number);
  long a = va_arg(rest, long), b = va_arg(rest, long), c = va_arg(rest, long);
  long d = va_arg(rest, long), e = va_arg(rest, long), f = va_arg(rest, long);
  va_end(rest);
  if (number == SYS_openat2) FAIL(judge_path(OPEN, (int)a, (const char *)b), -1);
  return REAL(syscall)(number, a, b, c, d, e, f);
}
DIR *opendir(const char *path) {
  FAIL(judge_path(OPENDIR, AT_FDCWD, path), NULL);
  return REAL(opendir)(path);
}
DIR *fdopendir(int fd) {
  FAIL(judge_file(OPENDIR, fd), NULL);
  return REAL(fdopendir)(fd);
}

ssize_t read(int fd, void *data, size_t size) {
  int32_t error = judge_transfer(READ, RECV, fd);
  FAIL(error, -1);
  return REAL(read)(fd, data, error == SHORT ? HALF(size) : size);
}
ssize_t pread(int fd, void *data, size_t size, off_t at) {
  int32_t error = judge_read_at(fd, size);
  FAIL(error, -1);
  return REAL(pread)(fd, data, error == SHORT ? HALF(size) : size, at);
}
ssize_t pread64(int fd, void *data, size_t size, off64_t at) {
  int32_t error = judge_read_at(fd, size);
  FAIL(error, -1);
  return REAL(pread64)(fd, data, error == SHORT ? HALF(size) : size, at);
}
ssize_t recv(int fd, void *data, size_t size, int flags) {
  int32_t error = judge_socket(RECV, fd);
  FAIL(error, -1);
  return REAL(recv)(fd, data, error == SHORT ? HALF(size) : size, flags);
}
ssize_t recvmsg(int fd, struct msghdr *message, int flags) {
  FAIL(judge_socket(RECV, fd), -1);
  return REAL(recvmsg)(fd, message, flags);
}

ssize_t write(int fd, const void *data, size_t size) {
  int32_t error = judge_transfer(WRITE, SEND, fd);
  FAIL(error, -1);
  return REAL(write)(fd, data, error == SHORT ? HALF(size) : size);
}
ssize_t pwrite(int fd, const void *data, size_t size, off_t at) {
  int32_t error = judge_file(WRITE, fd);
  FAIL(error, -1);
  return REAL(pwrite)(fd, data, error == SHORT ? HALF(size) : size, at);
}
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) {
  int32_t error = judge_file(WRITE, fd);
  FAIL(error, -1);
  return REAL(pwrite64)(fd, data, error == SHORT ? HALF(size) : size, at);
}
ssize_t writev(int fd, const struct iovec *parts, int size) {
  int32_t error = judge_transfer(WRITE, SEND, fd);
  FAIL(error, -1);
  if (error == SHORT && size > 0) return REAL(write)(fd, parts[0].iov_base, HALF(parts[0].iov_len));
  return REAL(writev)(fd, parts, size);
}
ssize_t send(int fd, const void *data, size_t size, int flags) {
  int32_t error = judge_socket(SEND, fd);
  FAIL(error, -1);
  return REAL(send)(fd, data, error == SHORT ? HALF(size) : size, flags);
}
ssize_t sendmsg(int fd, const struct msghdr *message, int flags) {
  int32_t error = judge_socket(SEND, fd);
  FAIL(error, -1);
  if (error == SHORT && message->msg_iovlen > 0 && !message->msg_controllen)
    return REAL(send)(fd, message->msg_iov[0].iov_base, HALF(message->msg_iov[0].iov_len), flags);
  return REAL(sendmsg)(fd, message, flags);
}
ssize_t sendfile64(int target, int source, off64_t *at, size_t size);
ssize_t sendfile64(int target, int source, off64_t *at, size_t size) {
  int32_t error = judge_transfer(WRITE, SEND, target);
  FAIL(error, -1);
  return REAL(sendfile64)(target, source, at, error == SHORT ? HALF(size) : size);
}

int fsync(int fd) {
  FAIL(judge_file(FSYNC, fd), -1);
  return REAL(fsync)(fd);
}
int fdatasync(int fd) {
  FAIL(judge_file(FDATASYNC, fd), -1);
  return REAL(fdatasync)(fd);
}
int ftruncate(int fd, off_t size) {
  FAIL(judge_file(FTRUNCATE, fd), -1);
  return REAL(ftruncate)(fd, size);
}
int ftruncate64(int fd, off64_t size) {
  FAIL(judge_file(FTRUNCATE, fd), -1);
  return REAL(ftruncate64)(fd, size);
}
void *mmap(void *at, size_t size, int access, int flags, int fd, off_t offset) {
  if (fd >= 0) FAIL(judge_file(MMAP, fd), MAP_FAILED);
  return REAL(mmap)(at, size, access, flags, fd, offset);
}
void *mmap64(void *at, size_t size, int access, int flags, int fd, off64_t offset) {
  if (fd >= 0) FAIL(judge_file(MMAP, fd), MAP_FAILED);
  return REAL(mmap64)(at, size, access, flags, fd, offset);
}

int rename(const char *source, const char *target) {
  FAIL(judge_path(RENAME, AT_FDCWD, target), -1);
  return REAL(rename)(source, target);
}
int renameat(int source_folder, const char *source, int folder, const char *target) {
  FAIL(judge_path(RENAME, folder, target), -1);
  return REAL(renameat)(source_folder, source, folder, target);
}
int link(const char *source, const char *target) {
  FAIL(judge_path(LINK, AT_FDCWD, target), -1);
  return REAL(link)(source, target);
}
int linkat(int source_folder, const char *source, int folder, const char *target, int flags) {
  FAIL(judge_path(LINK, folder, target), -1);
  return REAL(linkat)(source_folder, source, folder, target, flags);
}
int unlink(const char *path) {
  FAIL(judge_path(UNLINK, AT_FDCWD, path), -1);
  return REAL(unlink)(path);
}
int unlinkat(int folder, const char *path, int flags) {
  FAIL(judge_path(UNLINK, folder, path), -1);
  return REAL(unlinkat)(folder, path, flags);
}
int mkdir(const char *path, mode_t mode) {
  FAIL(judge_path(MKDIR, AT_FDCWD, path), -1);
  return REAL(mkdir)(path, mode);
}
int mkdirat(int folder, const char *path, mode_t mode) {
  FAIL(judge_path(MKDIR, folder, path), -1);
  return REAL(mkdirat)(folder, path, mode);
}

int socket(int family, int type, int protocol) {
  if (is_counting() && (family == AF_UNIX || family == AF_INET || family == AF_INET6)) FAIL(count(SOCKET, "a socket"), -1);
  return REAL(socket)(family, type, protocol);
}
int connect(int fd, const struct sockaddr *address, socklen_t size) {
  if (is_counting()) FAIL(count(CONNECT, "a socket"), -1);
  return REAL(connect)(fd, address, size);
}
int accept(int fd, struct sockaddr *address, socklen_t *size) {
  FAIL(judge_socket(ACCEPT, fd), -1);
  return REAL(accept)(fd, address, size);
}
int accept4(int fd, struct sockaddr *address, socklen_t *size, int flags) {
  FAIL(judge_socket(ACCEPT, fd), -1);
  return REAL(accept4)(fd, address, size, flags);
}
