"""Starting a server in the calling process."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict

from sglang.srt.server_args import ServerArgs


def launch_server(server_args: ServerArgs) -> None:
    """Never returns. A fresh interpreter takes the process over: what was forked has the trainer's threads missing."""
    os.execv(sys.executable, [sys.executable, "-m", "sglang.server", json.dumps(asdict(server_args))])
