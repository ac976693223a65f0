"""Linux namespaces: a process tree, network, and file system of a slot's own.

References: user_namespaces(7), pid_namespaces(7), mount_namespaces(7), pivot_root(2).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import stat
import struct

NEWNS, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET = 0x20000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
#: What a slot has of its own besides its process tree and user ids.
INSIDE = NEWNS | NEWUTS | NEWIPC | NEWNET

#: User ids inside: the supervisor's, where it has one of its own, and the program's.
SUPERVISOR_UID, PROGRAM_UID = 0, 1000

#: What of the host's file system a program sees, read-only, besides its Python installation.
SYSTEM_PATHS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store")
ETC_PATHS = (
    "/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime",
    "/etc/mime.types", "/etc/timezone",
)  # fmt: skip
DEVICES = ("null", "zero", "full", "random", "urandom")
WORK, SHM = "/tmp/work", "/tmp/shm"

_RDONLY, _NOSUID, _NODEV, _NOEXEC, _REMOUNT, _BIND, _REC, _SLAVE = 1, 2, 4, 8, 32, 4096, 16384, 1 << 19
_DETACH = 2
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_MOUNT_SETATTR, _AT_RECURSIVE = 442, 0x8000
_CAPSET = {"x86_64": 126, "aarch64": 91}


class Kernel:
    """The C library's calls that Python has none for; each raises OSError where the kernel refuses."""

    def __init__(self) -> None:
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.machine = os.uname().machine

    def _check(self, result: int, what: str) -> None:
        if result != 0:
            code = ctypes.get_errno()
            raise OSError(code, f"{what}: {os.strerror(code)}")

    def unshare(self, flags: int) -> None:
        self._check(self.libc.unshare(ctypes.c_int(flags)), "unshare")

    def mount(self, source: str, target: str, kind: str | None, flags: int, options: str = "") -> None:
        result = self.libc.mount(
            source.encode(), target.encode(), kind.encode() if kind else None, ctypes.c_ulong(flags), options.encode()
        )
        self._check(result, f"mount {kind or source} on {target}")

    def detach(self, target: str) -> None:
        self._check(self.libc.umount2(target.encode(), ctypes.c_int(_DETACH)), f"umount {target}")

    def pivot_root(self, new: str, old: str) -> None:
        self._check(self.libc.syscall(ctypes.c_long(_PIVOT_ROOT[self.machine]), new.encode(), old.encode()), "pivot")

    def make_read_only(self, target: str) -> None:
        """Read-only with all that is mounted below; an older kernel does the top mount only."""
        attributes = struct.pack("QQQQ", _RDONLY | _NOSUID | _NODEV, 0, 0, 0)
        result = self.libc.syscall(
            ctypes.c_long(_MOUNT_SETATTR), ctypes.c_int(-100), target.encode(), ctypes.c_uint(_AT_RECURSIVE),
            attributes, ctypes.c_size_t(len(attributes)),
        )  # fmt: skip
        if result != 0:
            self.mount("none", target, None, _REMOUNT | _BIND | _RDONLY | _NOSUID | _NODEV)

    def drop_capabilities(self) -> None:
        if self.machine not in _CAPSET:
            raise OSError(errno.ENOSYS, f"capset on {self.machine}")
        header = struct.pack("Ii", 0x20080522, 0)  # _LINUX_CAPABILITY_VERSION_3, this process
        self._check(self.libc.syscall(ctypes.c_long(_CAPSET[self.machine]), header, bytes(24)), "capset")

    def prctl(self, option: int, value: int) -> None:
        zero = ctypes.c_ulong(0)
        self._check(self.libc.prctl(option, ctypes.c_ulong(value), zero, zero, zero), f"prctl {option}")

    def close_from(self, first: int) -> None:
        if self.libc.syscall(ctypes.c_long(436), ctypes.c_uint(first), ctypes.c_uint(2**32 - 1), ctypes.c_uint(0)) != 0:
            os.closerange(first, 65536)  # before Linux 5.9

    def set_hostname(self, name: str) -> None:
        self._check(self.libc.sethostname(name.encode(), ctypes.c_size_t(len(name))), "sethostname")


def write_id_maps(pid: int, outside: int) -> None:
    """Maps the two ids of a slot to ``outside`` and the one after it; needs privilege over the host's ids."""
    for name in ("uid_map", "gid_map"):
        with open(f"/proc/{pid}/{name}", "w") as f:
            f.write(f"{SUPERVISOR_UID} {outside} 1\n{PROGRAM_UID} {outside + 1} 1\n")


def write_own_id_maps(uid: int, gid: int) -> None:
    """Maps the program's id to this process's own; what anyone may do after entering a user namespace."""
    try:
        with open("/proc/self/setgroups", "w") as f:
            f.write("deny")
        for name, value in (("uid_map", uid), ("gid_map", gid)):
            with open(f"/proc/self/{name}", "w") as f:
                f.write(f"{PROGRAM_UID} {value} 1\n")
    except OSError as e:
        raise OSError(e.errno, f"mapping user {uid} into a user namespace: {e.strerror}") from None


def build_root(kernel: Kernel, visible: list[str]) -> int | None:
    """Gives this mount namespace a root of its own: system and Python read-only, and nothing else.

    Returns a descriptor of a /proc of this process tree that has no path (programs cannot reach it), or None where
    the host does not allow one.
    """
    kernel.mount("none", "/", None, _SLAVE | _REC)
    base = "/tmp" if os.path.isdir("/tmp") else "/mnt"
    kernel.mount("tmpfs", base, "tmpfs", _NOSUID | _NODEV, "size=1m,nr_inodes=4096,mode=0755")
    os.mkdir(f"{base}/old", 0o700)
    os.chdir(base)
    kernel.pivot_root(base, f"{base}/old")
    os.chdir("/")
    for path in [*SYSTEM_PATHS, *ETC_PATHS, *visible]:
        _show(kernel, path)
    os.makedirs("/dev", exist_ok=True)
    for name in DEVICES:
        if os.path.exists(f"/old/dev/{name}"):
            _touch(f"/dev/{name}")
            kernel.mount(f"/old/dev/{name}", f"/dev/{name}", None, _BIND)
    os.symlink(SHM, "/dev/shm")  # POSIX semaphores and shared memory: in the run's own folder, within its size
    os.makedirs("/etc", exist_ok=True)
    for name, text in _ACCOUNTS.items():
        with open(f"/etc/{name}", "w") as f:
            f.write(text)
    os.mkdir("/proc")  # stays empty for programs
    os.mkdir("/tmp")
    proc = _hidden_proc(kernel)
    kernel.detach("/old")
    os.rmdir("/old")
    kernel.mount("none", "/", None, _REMOUNT | _BIND | _RDONLY | _NOSUID | _NODEV)
    return proc


_ACCOUNTS = {
    "passwd": (
        f"root:x:{SUPERVISOR_UID}:0:root:/:/bin/false\nsandbox:x:{PROGRAM_UID}:{PROGRAM_UID}:sandbox:{WORK}:/bin/sh\n"
    ),
    "group": f"root:x:0:\nsandbox:x:{PROGRAM_UID}:\n",
    "hosts": "127.0.0.1 localhost\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}


def _show(kernel: Kernel, path: str) -> None:
    """Binds one path of the old root at the same place of the new, read-only; a link stays a link."""
    source = f"/old{path}"
    try:
        mode = os.lstat(source).st_mode
    except OSError:
        return
    if os.path.lexists(path):
        return  # inside something that is visible already
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    if stat.S_ISLNK(mode):
        os.symlink(os.readlink(source), path)
        return
    if stat.S_ISDIR(mode):
        os.mkdir(path, 0o755)
    else:
        _touch(path)
    kernel.mount(source, path, None, _BIND | _REC)
    kernel.make_read_only(path)


def _touch(path: str) -> None:
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o644))


def _hidden_proc(kernel: Kernel) -> int | None:
    try:
        kernel.mount("proc", "/proc", "proc", _NOSUID | _NODEV | _NOEXEC)
    except OSError:
        return None  # refused where the host's own /proc is masked, as in most containers
    descriptor = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
    kernel.detach("/proc")
    return descriptor


def mount_scratch(kernel: Kernel, disk_bytes: int, program_uid: int) -> None:
    """An empty file system of limited size at /tmp, in memory, with the program's folder in it."""
    inodes = max(64, min(16384, disk_bytes // 4096))
    kernel.mount("tmpfs", "/tmp", "tmpfs", _NOSUID | _NODEV, f"size={disk_bytes},nr_inodes={inodes},mode=0755")
    for path in (WORK, SHM):
        os.mkdir(path, 0o700)
        os.chown(path, program_uid, program_uid)
    os.chown("/tmp", program_uid, program_uid)


def scratch_is_clean() -> bool:
    """Whether the last run left /tmp exactly as :func:`mount_scratch` makes it."""
    try:
        if sorted(os.listdir("/tmp")) != ["shm", "work"]:
            return False
        top = os.lstat("/tmp")
        if stat.S_IMODE(top.st_mode) != 0o755 or os.listxattr("/tmp"):
            return False
        for path in (WORK, SHM):
            found = os.lstat(path)
            if not stat.S_ISDIR(found.st_mode) or stat.S_IMODE(found.st_mode) != 0o700 or os.listdir(path):
                return False
    except OSError:
        return False
    return True


def renew_scratch(kernel: Kernel, disk_bytes: int, program_uid: int) -> None:
    with contextlib.suppress(OSError):
        kernel.detach("/tmp")
    mount_scratch(kernel, disk_bytes, program_uid)
