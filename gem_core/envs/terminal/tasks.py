"""Small terminal tasks of our own making; every seed draws other files."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gem_core.envs.terminal.task import TerminalTask

_SERVICES = ("auth", "billing", "cache", "mail", "search", "web")
_WORDS = ("amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "harbor", "inlet", "juniper", "kelp", "lagoon")


@dataclass(frozen=True)
class TaskKind:
    make: Callable[[random.Random], TerminalTask]
    summary: str
    max_turns: int = 10


def _log_errors(rng: random.Random) -> TerminalTask:
    lines = []
    counts: Counter[str] = Counter()
    for minute in range(rng.randint(120, 200)):
        service, level = rng.choice(_SERVICES), rng.choices(("INFO", "WARN", "ERROR"), (6, 2, 3))[0]
        counts[service] += level == "ERROR"
        note = rng.choice(("request served", "retry after ERROR page", "queue drained", "slow answer"))
        lines.append(f"2031-04-{1 + minute // 60:02d} {minute // 60:02d}:{minute % 60:02d} {level} {service}: {note}")
    wanted = [f"{name} {n}" for name, n in sorted(counts.items(), key=lambda item: (-item[1], item[0])) if n]
    return TerminalTask(
        name="LogErrors",
        instruction=(
            "The file app.log has one event a line: date, time, level, service (followed by a colon), message. Write "
            "errors.txt with a line `service count` for each service that has events of level ERROR, the service with "
            "the most first and equal counts in alphabetical order. The word ERROR in a message does not count."
        ),
        files={"app.log": "\n".join(lines) + "\n"},
        check=_equal_lines("errors.txt", wanted),
        solution=(
            'awk \'$3 == "ERROR" {sub(":", "", $4); n[$4]++} END {for (s in n) print s, n[s]}\' app.log '
            "| sort -k2,2nr -k1,1 > errors.txt"
        ),
    )


def _sales_totals(rng: random.Random) -> TerminalTask:
    rows, totals = [], Counter[str]()
    for number in range(rng.randint(30, 60)):
        region, units, price = rng.choice(("north", "south", "east", "west")), rng.randint(1, 9), rng.randint(2, 40)
        cancelled = rng.random() < 0.2
        totals[region] += 0 if cancelled else units * price
        rows.append(f"{number},{region},{units},{price},{'cancelled' if cancelled else 'paid'}")
    wanted = ["region,total", *(f"{region},{total}" for region, total in sorted(totals.items()) if total)]
    return TerminalTask(
        name="SalesTotals",
        instruction=(
            "sales.csv has the columns id,region,units,price,status. Write totals.csv with the header region,total and "
            "one line for each region, in alphabetical order: the sum of units times price over its orders with status "
            "paid."
        ),
        files={"sales.csv": "id,region,units,price,status\n" + "\n".join(rows) + "\n"},
        check=_equal_lines("totals.csv", wanted),
        solution=(
            '(echo region,total; awk -F, \'$5 == "paid" {t[$2] += $3 * $4} END {for (r in t) print r "," t[r]}\' '
            "sales.csv | sort) > totals.csv"
        ),
    )


def _find_file(rng: random.Random) -> TerminalTask:
    folders = [f"{a}/{b}" for a in rng.sample(_WORDS, 4) for b in rng.sample(_WORDS, 3)]
    files: dict[str, str | bytes] = {}
    for folder in folders:
        for _ in range(3):
            files[f"archive/{folder}/{rng.randrange(10**6):06d}.txt"] = " ".join(rng.choices(_WORDS, k=40)) + "\n"
    token = f"key-{rng.randrange(10**8):08d}"
    target, decoy = rng.sample(sorted(files), 2)
    files[target] = f"{files[target]!s}{token}\n"
    files[decoy] = f"{files[decoy]!s}{token}0\n"
    return TerminalTask(
        name="FindFile",
        instruction=(
            f"Somewhere below the folder archive one file has a line that is exactly {token}. Write the path of that "
            "file, beginning with archive/, to found.txt, and delete the file itself."
        ),
        files=files,
        check=_equal_lines(
            "found.txt", [target], extra=f"and not os.path.exists({target!r}) and os.path.exists({decoy!r})"
        ),
        solution=f'grep -rlx {token} archive > found.txt; rm "$(cat found.txt)"',
    )


def _rename(rng: random.Random) -> TerminalTask:
    names = rng.sample(_WORDS, 8)
    files: dict[str, str | bytes] = {}
    wanted: dict[str, str] = {}
    for name in names:
        written = "".join(rng.choice((c, c.upper())) for c in name) + rng.choice((" copy", "  final", " v2", ""))
        ending = rng.choice((".JPG", ".jpg", ".Jpeg"))
        text = f"{rng.randrange(10**9)}\n"
        files[f"photos/{written}{ending}"] = text
        wanted["_".join(written.lower().split()) + ".jpg"] = text
    return TerminalTask(
        name="RenamePhotos",
        instruction=(
            "Rename the files in the folder photos: names in lower case, each run of spaces replaced by one "
            "underscore, and the ending .jpg whatever it was before (.JPG, .jpg or .Jpeg). Contents must not change."
        ),
        files=files,
        check=(
            f"import os\nwanted = {wanted!r}\n"
            "found = {n: open('photos/' + n).read() for n in os.listdir('photos')}\n"
            "print(sum(found.get(n) == t for n, t in wanted.items()) / len(wanted) if len(found) == len(wanted) else 0)"
        ),
        solution=(
            "cd photos; for f in *; do n=$(echo \"${f%.*}\" | tr 'A-Z' 'a-z' | tr -s ' ' '_').jpg; "
            '[ "$f" = "$n" ] || mv "$f" "$n"; done'
        ),
    )


def _merge_settings(rng: random.Random) -> TerminalTask:
    def settings(depth: int) -> dict[str, Any]:
        keys = rng.sample(_WORDS, 4)
        return {k: settings(depth - 1) if depth and rng.random() < 0.6 else rng.randint(1, 99) for k in keys}

    base, override = settings(2), settings(2)
    common = rng.choice(sorted(base))
    override[common] = settings(1)
    base[common] = settings(1)

    def merged(a: Any, b: Any) -> Any:
        if isinstance(a, dict) and isinstance(b, dict):
            return {k: merged(a[k], b[k]) if k in a and k in b else (b[k] if k in b else a[k]) for k in {**a, **b}}
        return b

    wanted = json.dumps(merged(base, override))
    return TerminalTask(
        name="MergeSettings",
        instruction=(
            "Merge base.json and local.json into merged.json. Where both have an object under the same key, their "
            "keys are merged in the same way; otherwise the value of local.json counts."
        ),
        files={"base.json": json.dumps(base, indent=2), "local.json": json.dumps(override, indent=2)},
        check=f"import json\nassert json.load(open('merged.json')) == json.loads({wanted!r})",
        solution=(
            "python3 - <<'END'\nimport json\ndef m(a, b):\n    if isinstance(a, dict) and isinstance(b, dict):\n"
            "        return {k: m(a[k], b[k]) if k in a and k in b else b.get(k, a.get(k)) for k in {**a, **b}}\n"
            "    return b\n"
            "json.dump(m(json.load(open('base.json')), json.load(open('local.json'))), open('merged.json', 'w'))\nEND"
        ),
    )


def _fix_program(rng: random.Random) -> TerminalTask:
    name, broken, fixed, cases = rng.choice(_BUGS)
    return TerminalTask(
        name="FixProgram",
        instruction=(
            f"{name} has a bug: its function does not do what its docstring says. Repair it. It will be tested with "
            "inputs that you do not see."
        ),
        files={name: broken},
        check=_RUN_CASES.format(module=name[:-3], cases=cases),
        solution=f"cat > {name} <<'END'\n{fixed}END",
    )


# The agent's program runs apart from the check, which alone knows what is right.
_RUN_CASES = """
import json, subprocess, sys
def run(arguments):
    code = "import json, sys; from {module} import solve; print(json.dumps(solve(*json.load(sys.stdin))))"
    command = [sys.executable, "-S", "-c", code]
    done = subprocess.run(command, input=json.dumps(arguments), capture_output=True, text=True)
    try:
        return json.loads(done.stdout)
    except ValueError:
        return "no result"
cases = {cases!r}
print(sum(run(given) == right for given, right in cases) / len(cases))
"""

_BUGS: list[tuple[str, str, str, list[tuple[tuple[Any, ...], Any]]]] = [
    (
        "median.py",
        'def solve(numbers):\n    """The median; the mean of the middle two of an even count."""\n'
        "    ordered = sorted(numbers)\n    return ordered[len(ordered) // 2]\n",
        "def solve(numbers):\n    ordered = sorted(numbers)\n    half = len(ordered) // 2\n"
        "    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2\n",
        [(([3, 1, 2],), 2), (([4, 1, 3, 2],), 2.5), (([5],), 5), (([1, 9],), 5.0)],
    ),
    (
        "intervals.py",
        'def solve(intervals):\n    """Merges overlapping or touching [start, end] pairs; sorted."""\n    merged = []\n'
        "    for start, end in intervals:\n        if merged and start < merged[-1][1]:\n"
        "            merged[-1][1] = end\n        else:\n            merged.append([start, end])\n    return merged\n",
        "def solve(intervals):\n    merged = []\n    for start, end in sorted(intervals):\n"
        "        if merged and start <= merged[-1][1]:\n            merged[-1][1] = max(end, merged[-1][1])\n"
        "        else:\n            merged.append([start, end])\n    return merged\n",
        [
            (([[1, 3], [2, 5]],), [[1, 5]]),
            (([[4, 6], [1, 2]],), [[1, 2], [4, 6]]),
            (([[1, 9], [2, 3]],), [[1, 9]]),
            (([[1, 2], [2, 3]],), [[1, 3]]),
        ],
    ),
    (
        "initials.py",
        'def solve(name):\n    """Initials in upper case, one for each word: "ada de lovelace" gives "ADL"."""\n'
        "    return ''.join(word[0] for word in name.split(' ')).upper()\n",
        "def solve(name):\n    return ''.join(word[0] for word in name.split()).upper()\n",
        [(("ada de lovelace",), "ADL"), (("  alan  turing ",), "AT"), (("",), ""), (("x",), "X")],
    ),
]


def _remove_copies(rng: random.Random) -> TerminalTask:
    files: dict[str, str | bytes] = {}
    first: dict[str, str] = {}
    texts = [f"{rng.randrange(10**9)}\n" for _ in range(6)]
    for name in sorted(rng.sample([f"{a}-{b}.dat" for a in _WORDS for b in range(4)], 18)):
        text = rng.choice(texts)
        files[f"store/{name}"] = text
        first.setdefault(text, name)
    keep = sorted(first.values())
    return TerminalTask(
        name="RemoveCopies",
        instruction=(
            "Several files in the folder store have the same content. Of each group of equal files keep the one whose "
            "name comes first in alphabetical order and delete the others."
        ),
        files=files,
        check=f"import os\nassert sorted(os.listdir('store')) == {keep!r}",
        solution=(
            'cd store; export LC_ALL=C; for f in *; do md5sum "$f"; done | sort | '
            "awk 'seen[$1]++ {print $2}' | xargs rm -f"
        ),
    )


def _permissions(rng: random.Random) -> TerminalTask:
    scripts, notes = rng.sample(_WORDS, 3), rng.sample(_WORDS, 4)
    files: dict[str, str | bytes] = {f"bin/{n}.sh": f"#!/bin/sh\necho {n}\n" for n in scripts}
    files |= {f"docs/{n}.md": f"# {n}\n" for n in notes}
    modes = {name: 0o755 if name.startswith("bin/") else 0o444 for name in files}
    return TerminalTask(
        name="Permissions",
        instruction=(
            "Set the permissions: every file in bin to rwxr-xr-x, every file in docs to r--r--r--. Then write the "
            "output of all scripts in bin, run in alphabetical order, to output.txt."
        ),
        files=files,
        check=_equal_lines(
            "output.txt",
            sorted(scripts),
            extra=f"and all(os.stat(n).st_mode & 0o777 == m for n, m in {modes!r}.items())",
        ),
        solution='chmod 755 bin/*; chmod 444 docs/*; for f in bin/*; do "./$f"; done > output.txt',
    )


def _equal_lines(name: str, wanted: list[str], extra: str = "") -> str:
    return (
        f"import os\nlines = [line.strip() for line in open({name!r}) if line.strip()]\n"
        f"assert lines == {wanted!r} {extra}"
    )


TASKS: dict[str, TaskKind] = {
    "LogErrors": TaskKind(_log_errors, "count the errors of each service in a log"),
    "SalesTotals": TaskKind(_sales_totals, "sum a CSV file by region"),
    "FindFile": TaskKind(_find_file, "find a file by a line of its content, and delete it"),
    "RenamePhotos": TaskKind(_rename, "bring file names into one form"),
    "MergeSettings": TaskKind(_merge_settings, "merge two JSON files key by key"),
    "FixProgram": TaskKind(_fix_program, "repair a small Python program", max_turns=12),
    "RemoveCopies": TaskKind(_remove_copies, "delete files that are copies of others"),
    "Permissions": TaskKind(_permissions, "set permissions and run scripts"),
}
