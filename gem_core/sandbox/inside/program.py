"""What happens in the child that becomes the program: limits, privileges given up, then the code itself."""

from __future__ import annotations

import atexit
import builtins
import contextlib
import gc
import importlib
import io
import json
import linecache
import os
import signal
import sys
import threading
import traceback
import types

TYPE_CHECKING = False
if TYPE_CHECKING:  # not the typing module's: what a template imports, every program pays for
    from collections.abc import Callable
    from typing import Any

#: The program's name in tracebacks and ``sys.argv``.
FILE_NAME = "main.py"
#: Exit status of a child whose set-up failed; the code did not run.
SETUP_FAILED = 125

#: Names that models use without importing them, and where each comes from. ``module:name`` or a module.
CONVENIENCES: dict[str, str] = {
    **{
        m: m
        for m in (
            "array", "base64", "bisect", "cmath", "collections", "copy", "csv", "datetime", "decimal", "fractions",
            "functools", "hashlib", "heapq", "io", "itertools", "json", "math", "numpy", "operator", "os", "pandas",
            "random", "re", "scipy", "statistics", "string", "struct", "sympy", "sys", "textwrap", "time", "typing",
            "uuid",
        )
    },
    **{
        n: f"{m}:{n}"
        for m, names in {
            "bisect": "bisect_left bisect_right insort",
            "collections": "ChainMap Counter OrderedDict defaultdict deque namedtuple",
            "copy": "deepcopy",
            "dataclasses": "dataclass",
            "decimal": "Decimal",
            "fractions": "Fraction",
            "functools": "cache cmp_to_key lru_cache partial reduce",
            "heapq": "heapify heappop heappush heapreplace merge nlargest nsmallest",
            "itertools": "accumulate chain combinations combinations_with_replacement count cycle groupby islice "
            "permutations product repeat zip_longest pairwise",
            "math": "acos asin atan atan2 ceil comb cos degrees dist e exp factorial floor gcd hypot inf isqrt lcm log "
            "log10 log2 nan perm pi prod radians sin sqrt tan",
            "operator": "itemgetter attrgetter iand ior mul xor",
            "os.path": "commonprefix",
            "random": "choice randint randrange sample shuffle",
            "string": "ascii_letters ascii_lowercase ascii_uppercase digits",
            "typing": "Any Callable Deque Dict Generator Iterable Iterator List Optional Set Tuple Union",
        }.items()
        for n in names.split()
    },
    "np": "numpy",
    "pd": "pandas",
    "sp": "sympy",
    "plt": "matplotlib.pyplot",
}  # fmt: skip


class Job:
    """One run, ready to be carried out by a forked child.

    Args:
        code: Python source, where there is no ``argv``.
        argv: The words of a command.
        arguments: The Python program's ``sys.argv[1:]``.
        limits: ``(resource, soft, hard)``.
        folder: Where it runs.
        environment: A command's environment; None = this process's, as for Python programs.
        files: Names and contents to write into the folder first.
        supply_imports: Supply names of :data:`CONVENIENCES` that the code uses and never binds.
        isolated: Do not import from the folder, where an earlier run may have left modules of any name.
        call: Name of a function of the code, its arguments, and the mark behind which its result is written; the code
            is then a module, not ``__main__``.
    """

    def __init__(
        self,
        code: str,
        argv: list[str] | None,
        arguments: list[str],
        limits: list[tuple[int, int, int]],
        folder: str,
        environment: dict[str, str] | None,
        files: list[tuple[str, bytes]],
        supply_imports: bool,
        isolated: bool,
        call: tuple[str, list[Any], str] | None,
    ) -> None:
        self.code, self.argv, self.arguments = code, argv, arguments
        self.limits, self.folder, self.environment = limits, folder, environment
        self.files, self.supply_imports, self.isolated, self.call = files, supply_imports, isolated, call


def open_standard_streams() -> None:
    """Streams on descriptors 0, 1 and 2 as a program has them; made in the supervisor, which saves each child that."""
    sys.stdin = sys.__stdin__ = _stream(0, "r", "surrogateescape")  # type: ignore[misc]
    read, write = os.pipe()  # what the program will have: a stream looks at its descriptor once
    saved = os.dup(1)
    os.dup2(write, 1)
    os.dup2(write, 2)
    sys.stdout = sys.__stdout__ = _stream(1, "w", "surrogateescape")  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = _stream(2, "w", "backslashreplace")  # type: ignore[misc]
    sys.stderr.reconfigure(line_buffering=True)
    os.dup2(saved, 1)
    os.dup2(saved, 2)
    for descriptor in (read, write, saved):
        os.close(descriptor)


def _stream(descriptor: int, mode: str, errors: str) -> io.TextIOWrapper:
    return open(descriptor, mode, encoding="utf-8", errors=errors, closefd=False)  # type: ignore[return-value]


def become_program(
    job: Job,
    confine: Callable[[], None],
    close_from: Callable[[int], None],
    stdin: int,
    stdout: int,
    stderr: int,
) -> None:
    """Turns this forked child into the program; never returns.

    Args:
        confine: Called once everything is in place; gives up privileges and installs the filter.
    """
    try:
        os.setsid()
        os.dup2(stdin, 0)
        os.dup2(stdout, 1)
        os.dup2(stderr, 2)
        close_from(3)
        _set_limits(job.limits)
        os.chdir(job.folder)
        confine()
        for name, content in job.files:
            _write_file(name, content)
    except BaseException as e:
        with contextlib.suppress(OSError):
            os.write(2, f"sandbox: set-up failed: {type(e).__name__}: {e}\n".encode())
        os._exit(SETUP_FAILED)
    if job.argv is not None:
        _run_command(job.argv, job.environment)
    _run_python(job)


def _set_limits(limits: list[tuple[int, int, int]]) -> None:
    import resource

    for kind, soft, hard in limits:
        try:
            resource.setrlimit(kind, (soft, hard))
        except ValueError:  # the host's hard limit is lower already, and stands
            _, most = resource.getrlimit(kind)
            resource.setrlimit(kind, (min(soft, most) if most >= 0 else soft, most))


def _write_file(name: str, content: bytes) -> None:
    if os.path.dirname(name):
        os.makedirs(os.path.dirname(name), exist_ok=True)
    with open(name, "wb") as f:
        f.write(content)


def _run_command(argv: list[str], environment: dict[str, str] | None) -> None:
    for ignored in ("SIGPIPE", "SIGXFSZ"):  # Python ignores them, and an ignored signal would be inherited
        signal.signal(getattr(signal, ignored), signal.SIG_DFL)
    try:
        os.execvpe(argv[0], argv, os.environ if environment is None else environment)
    except OSError as e:
        os.write(2, f"{argv[0]}: {e.strerror}\n".encode())
        os._exit(127 if isinstance(e, FileNotFoundError) else 126)
    except ValueError as e:
        os.write(2, f"{e}\n".encode())
        os._exit(126)


def _run_python(job: Job) -> None:
    status = 1
    try:
        main = types.ModuleType("__main__" if job.call is None else "solution")
        main.__dict__["__builtins__"] = builtins
        sys.modules[main.__name__] = main
        sys.argv = [FILE_NAME, *job.arguments]
        if not job.isolated:
            sys.path.insert(0, job.folder)
        linecache.cache[FILE_NAME] = (len(job.code), None, job.code.splitlines(keepends=True), FILE_NAME)
        if "numpy.random" in sys.modules:
            sys.modules["numpy.random"].seed()  # all children would otherwise draw the same numbers
        gc.enable()
        status = _execute(job, main.__dict__)
    except BaseException:
        pass
    _finish()
    os._exit(status)


def _execute(job: Job, namespace: dict[str, Any]) -> int:
    try:
        code = compile(job.code, FILE_NAME, "exec", dont_inherit=True)
        if job.supply_imports:
            _supply(code, namespace)
        exec(code, namespace)
        if job.call is not None:
            _call(namespace, *job.call)
    except SystemExit as e:
        if e.code is None or isinstance(e.code, int):
            return (e.code or 0) & 0xFF
        print(e.code, file=sys.stderr)
        return 1
    except BaseException as e:
        _report(e)
        return 130 if isinstance(e, KeyboardInterrupt) else 1
    return 0


def _call(namespace: dict[str, Any], name: str, arguments: list[Any], mark: str) -> None:
    """Calls a function of the code, or a method of its class ``Solution``, and writes what it returns as JSON."""
    function = namespace.get(name)
    if function is None and "Solution" in namespace:
        function = getattr(namespace["Solution"](), name, None)
    if function is None:
        raise NameError(f"the program defines no function {name!r}")
    text = json.dumps(function(*arguments), default=_plain)
    sys.__stdout__.write(f"\n{mark}{text}\n")  # type: ignore[union-attr]


def _plain(value: Any) -> Any:
    """What JSON has no form for, as a list or text."""
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=repr)
    if hasattr(value, "tolist"):  # NumPy
        return value.tolist()
    return list(value) if hasattr(value, "__iter__") else repr(value)


def _report(error: BaseException) -> None:
    """The traceback, without the frames of this module."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename == __file__:
        frames = frames.tb_next
    if sys.excepthook is not sys.__excepthook__:
        sys.excepthook(type(error), error, frames)
        return
    traceback.print_exception(type(error), error, frames)


def _supply(code: types.CodeType, namespace: dict[str, Any]) -> None:
    """Imports what the code uses and does not define. Its own definitions come later and win."""
    used: set[str] = set()
    todo = [code]
    while todo:
        current = todo.pop()
        used.update(current.co_names)
        todo += [c for c in current.co_consts if isinstance(c, types.CodeType)]
    for name in used & CONVENIENCES.keys():
        if hasattr(builtins, name):
            continue
        module, _, attribute = CONVENIENCES[name].partition(":")
        try:
            found: Any = importlib.import_module(module)
            namespace[name] = getattr(found, attribute) if attribute else found
        except Exception:  # not installed: the program's own NameError says it best
            continue


def _finish() -> None:
    """What the interpreter does at its end: waits for threads, runs exit handlers, flushes."""
    with contextlib.suppress(BaseException):
        if threading.active_count() > 1:
            threading._shutdown()  # type: ignore[attr-defined]
    with contextlib.suppress(BaseException):
        atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(BaseException):
            stream.flush()
