"""Run the frameworks' own tests of sessions and histories on ctxkit's adapters: `make check-adapters`.

Their tests come from the source distribution of the installed version, which is downloaded into a temporary folder.
Left out are tests of what is inside the class that is replaced: its connections, locks and damaged rows.
"""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[2]

SUITES = {
    "openai-agents": {
        "plugin": "replace_openai_agents",
        "files": [
            "tests/memory/test_session.py",
            "tests/memory/test_session_limit.py",
            "tests/memory/test_session_context_wrapper.py",
            "tests/memory/test_session_persistence_sanitize.py",
            "tests/test_hitl_session_scenario.py",
            "tests/test_max_turns.py",
            "tests/test_native_tool_failure_history.py",
            "tests/test_soft_cancel.py",
            "tests/test_tool_failure_boundaries.py",
        ],
        "without": [
            "connection", "corrupt", "file_lock", "write_lock", "closed_rejects", "clear_session_rolls_back",
            "post_commit_cancellation",
        ],
        "options": [],
    },
    "langchain-core": {
        "plugin": "replace_langchain",
        "files": ["tests/unit_tests/chat_history", "tests/unit_tests/runnables/test_history.py"],
        "without": [],
        "options": ["--noconftest", "--override-ini=addopts=", "--override-ini=asyncio_mode=auto"],
    },
}  # fmt: skip


def source(package: str, folder: Path) -> Path:
    """The unpacked source distribution of the installed version."""
    wanted = f"{package}=={importlib.metadata.version(package)}"
    download = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
    subprocess.run([*download, "-d", str(folder), wanted], check=True)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    return next(path for path in folder.iterdir() if path.is_dir())


def run(package: str) -> int:
    suite = SUITES[package]
    with tempfile.TemporaryDirectory() as folder:
        root = source(package, Path(folder))
        paths = [str(HERE), str(ROOT), str(ROOT / "adapters"), str(root)]
        chosen = ["-k", " and ".join(f"not {word}" for word in suite["without"])] if suite["without"] else []
        command = [sys.executable, "-m", "pytest", "-p", str(suite["plugin"]), "-p", "no:cacheprovider", "-q"]
        command += suite["options"]
        print(f"== {package} {importlib.metadata.version(package)}", flush=True)
        done = subprocess.run(
            [*command, *suite["files"], *chosen],
            cwd=root,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        )
        return done.returncode


if __name__ == "__main__":
    sys.exit(max(map(run, sys.argv[1:] or SUITES)))
