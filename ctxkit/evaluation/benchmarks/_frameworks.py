"""Asking the peers in `.peers/frameworks` for their chunks."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from ctxkit.errors import ConfigError
from ctxkit.evaluation.peers import peer_python, tiktoken_cache

__all__ = ["ask"]

_WORKER = Path(__file__).with_name("_frameworks_worker.py")


def ask(task: str, **request: Any) -> Any:
    """The worker's answer, or None where `make peers` has not made the environment."""
    python = peer_python("frameworks")
    if python is None:
        return None
    with tiktoken_cache() as folder:
        environment = {**os.environ, "TIKTOKEN_CACHE_DIR": str(folder), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            [str(python), str(_WORKER)],
            input=json.dumps({"task": task, **request}),
            capture_output=True,
            text=True,
            env=environment,
            check=False,
        )
    if done.returncode:
        raise ConfigError(
            "a peer failed", subject=f"{task}: {done.stderr.strip()[-500:]}", remedy="Run `make peers` again."
        )
    return json.loads(done.stdout)
