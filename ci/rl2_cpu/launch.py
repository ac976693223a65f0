"""``python ci/rl2_cpu/launch.py [RL2's overrides]``: ``gem_rl2.trainer`` in one process on a CPU."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path


def main() -> None:
    here = Path(__file__).resolve().parent
    sys.path.insert(0, str(here))
    import cpu

    cpu.install()
    # The servers are processes of their own and find the stand-ins too.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(cpu.STANDINS), os.environ.get("PYTHONPATH")]))
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    for name, value in {
        "RANK": "0",
        "LOCAL_RANK": "0",
        "WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "OMP_NUM_THREADS": "1",
    }.items():
        os.environ.setdefault(name, value)
    from gem_rl2.trainer import main as train

    train()


if __name__ == "__main__":
    main()
