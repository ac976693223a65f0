"""A seccomp filter: what a program may not ask of the kernel. Assembled here, without a library.

Default is to allow: the filter takes away what reaches out of the sandbox (network, other processes, namespaces,
mounts, keys, tracing, kernel interfaces) and leaves what ordinary programs use.
Reference: the kernel's Documentation/userspace-api/seccomp_filter.rst.
"""

from __future__ import annotations

import ctypes
import errno
import platform
import struct

# x86-64 and AArch64 system call numbers (the kernel's syscall tables; they never change).
_X86_64 = {
    "socket": 41, "clone": 56, "kill": 62, "shmget": 29, "shmat": 30, "shmctl": 31, "semget": 64, "semop": 65,
    "semctl": 66, "msgget": 68, "msgsnd": 69, "msgrcv": 70, "msgctl": 71, "semtimedop": 220, "mq_open": 240,
    "mq_unlink": 241, "ptrace": 101, "syslog": 103, "personality": 135, "setpriority": 141, "sched_setparam": 142,
    "sched_setscheduler": 144, "sched_setaffinity": 203, "sched_setattr": 314, "ioprio_set": 251, "vhangup": 153,
    "modify_ldt": 154, "pivot_root": 155, "adjtimex": 159, "chroot": 161, "acct": 163, "settimeofday": 164,
    "mount": 165, "umount2": 166, "swapon": 167, "swapoff": 168, "reboot": 169, "sethostname": 170,
    "setdomainname": 171, "iopl": 172, "ioperm": 173, "init_module": 175, "delete_module": 176, "quotactl": 179,
    "nfsservctl": 180, "tkill": 200, "lookup_dcookie": 212, "clock_settime": 227, "tgkill": 234, "mbind": 237,
    "set_mempolicy": 238, "kexec_load": 246, "add_key": 248, "request_key": 249, "keyctl": 250, "migrate_pages": 256,
    "unshare": 272, "move_pages": 279, "rt_sigqueueinfo": 129, "rt_tgsigqueueinfo": 297, "perf_event_open": 298,
    "fanotify_init": 300, "prlimit64": 302, "name_to_handle_at": 303, "open_by_handle_at": 304, "clock_adjtime": 305,
    "setns": 308, "process_vm_readv": 310, "process_vm_writev": 311, "kcmp": 312, "finit_module": 313,
    "memfd_create": 319, "kexec_file_load": 320, "bpf": 321, "userfaultfd": 323, "pidfd_send_signal": 424,
    "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "open_tree": 428, "move_mount": 429,
    "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433, "clone3": 435, "pidfd_getfd": 438,
    "process_madvise": 440, "mount_setattr": 442, "quotactl_fd": 443, "memfd_secret": 447, "process_mrelease": 448,
}  # fmt: skip
_AARCH64 = {
    "socket": 198, "clone": 220, "kill": 129, "shmget": 194, "shmat": 196, "shmctl": 195, "semget": 190, "semop": 193,
    "semctl": 191, "msgget": 186, "msgsnd": 189, "msgrcv": 188, "msgctl": 187, "semtimedop": 192, "mq_open": 180,
    "mq_unlink": 181, "ptrace": 117, "syslog": 116, "personality": 92, "setpriority": 140, "sched_setparam": 118,
    "sched_setscheduler": 119, "sched_setaffinity": 122, "sched_setattr": 274, "ioprio_set": 30, "vhangup": 58,
    "pivot_root": 41, "adjtimex": 171, "chroot": 51, "acct": 89, "settimeofday": 170, "mount": 40, "umount2": 39,
    "swapon": 224, "swapoff": 225, "reboot": 142, "sethostname": 161, "setdomainname": 162, "init_module": 105,
    "delete_module": 106, "quotactl": 60, "nfsservctl": 42, "tkill": 130, "lookup_dcookie": 18, "clock_settime": 112,
    "tgkill": 131, "mbind": 235, "set_mempolicy": 237, "kexec_load": 104, "add_key": 217, "request_key": 218,
    "keyctl": 219, "migrate_pages": 238, "unshare": 97, "move_pages": 239, "rt_sigqueueinfo": 138,
    "rt_tgsigqueueinfo": 240, "perf_event_open": 241, "fanotify_init": 262, "prlimit64": 261, "name_to_handle_at": 264,
    "open_by_handle_at": 265, "clock_adjtime": 266, "setns": 268, "process_vm_readv": 270, "process_vm_writev": 271,
    "kcmp": 272, "finit_module": 273, "memfd_create": 279, "kexec_file_load": 294, "bpf": 280, "userfaultfd": 282,
    "pidfd_send_signal": 424, "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "open_tree": 428,
    "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433, "clone3": 435, "pidfd_getfd": 438,
    "process_madvise": 440, "mount_setattr": 442, "quotactl_fd": 443, "memfd_secret": 447, "process_mrelease": 448,
}  # fmt: skip
_ARCHES = {"x86_64": (0xC000003E, _X86_64), "aarch64": (0xC00000B7, _AARCH64)}

#: Refused with an error of its own; every other listed call is refused with EPERM, or looked at below.
_ERRORS = {
    "socket": errno.EACCES,
    # glibc and libuv fall back to older calls on ENOSYS; clone3's flags lie in memory, where no filter can look.
    "clone3": errno.ENOSYS,
    "memfd_create": errno.ENOSYS,
    "io_uring_setup": errno.ENOSYS,
    "io_uring_enter": errno.ENOSYS,
    "io_uring_register": errno.ENOSYS,
}
#: What a supervisor needs, and the kernel refuses to anyone without privileges.
_SUPERVISORS = ("mount", "umount2")
_SIGNALS = ("kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo")
_NEW_NAMESPACES = 0x7E020000  # CLONE_NEW{CGROUP,UTS,IPC,USER,PID,NET} and CLONE_NEWNS

_LOAD, _JUMP, _EQUAL, _SET, _AT_LEAST, _RETURN = 0x20, 0x05, 0x15, 0x45, 0x35, 0x06
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_NR, _ARCH, _ARGUMENTS = 0, 4, 16


def _op(code: int, k: int, true: int = 0, false: int = 0) -> bytes:
    return struct.pack("HBBI", code, true, false, k)


_REFUSE, _PASS = _op(_RETURN, _ERRNO | errno.EPERM), _op(_RETURN, _ALLOW)

_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _MODE_FILTER = 38, 22, 2


def supported() -> bool:
    """Whether a filter exists for this machine (installing it can still fail)."""
    return platform.machine() in _ARCHES


def assemble(own_signals_only: int | None = None, supervisor: bool = False) -> bytes:
    """The filter as BPF instructions.

    Args:
        own_signals_only: The process id of the program where it shares its host's process ids: signals may then go
            only to itself and its own process group.
        supervisor: Leave :data:`_SUPERVISORS`.
    """
    arch, numbers = _ARCHES[platform.machine()]
    rules: list[tuple[int, list[bytes]]] = []
    for name, number in numbers.items():
        if supervisor and name in _SUPERVISORS:
            continue
        if name == "clone":
            rule = [_op(_LOAD, _ARGUMENTS), _op(_SET, _NEW_NAMESPACES, 0, 1), _REFUSE, _PASS]
        elif name == "prlimit64":  # on oneself it is how limits are read; on the supervisor it would be an attack
            rule = [_op(_LOAD, _ARGUMENTS), _op(_EQUAL, 0, 1, 0), _REFUSE, _PASS]
        elif name in _SIGNALS:
            if own_signals_only is None:
                continue
            own, group = own_signals_only, 2**32 - own_signals_only
            rule = [_op(_LOAD, _ARGUMENTS), _op(_EQUAL, own, 3, 0), _op(_EQUAL, 0, 2, 0), _op(_EQUAL, group, 1, 0)]
            rule += [_REFUSE, _PASS]
        elif name == "pidfd_send_signal" and own_signals_only is None:
            continue
        else:
            rule = [_op(_RETURN, _ERRNO | _ERRORS.get(name, errno.EPERM))]
        rules.append((number, rule))
    code = [_op(_LOAD, _ARCH), _op(_EQUAL, arch, 1, 0), _op(_RETURN, _KILL), _op(_LOAD, _NR)]
    # x86-64's x32 calls have a number range of their own that would pass by the list.
    code += [_op(_AT_LEAST, 0x40000000, 0, 1), _op(_RETURN, _ERRNO | errno.ENOSYS)]
    return b"".join(code + _search(sorted(rules)))


def _search(rules: list[tuple[int, list[bytes]]]) -> list[bytes]:
    """A binary search: installing a filter costs what it takes on every call number there is, several times."""
    if len(rules) <= 3:
        code: list[bytes] = []
        for number, rule in rules:
            code += [_op(_EQUAL, number, 0, len(rule)), *rule]
        return [*code, _PASS]
    middle = len(rules) // 2
    left, right = _search(rules[:middle]), _search(rules[middle:])
    if len(left) < 256:
        return [_op(_AT_LEAST, rules[middle][0], len(left), 0), *left, *right]
    return [_op(_AT_LEAST, rules[middle][0], 0, 1), _op(_JUMP, len(left)), *left, *right]


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def install(libc: ctypes.CDLL, code: bytes) -> None:
    """Puts the filter on this process and all that it will start; there is no way back.

    Raises:
        OSError: the kernel does not have it or does not allow it.
    """
    program = _Program(len(code) // 8, code)
    zero = ctypes.c_ulong(0)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, ctypes.c_ulong(1), zero, zero, zero) != 0:
        raise OSError(ctypes.get_errno(), "PR_SET_NO_NEW_PRIVS")
    if libc.prctl(_PR_SET_SECCOMP, ctypes.c_ulong(_MODE_FILTER), ctypes.byref(program), zero, zero) != 0:
        raise OSError(ctypes.get_errno(), "PR_SET_SECCOMP")
