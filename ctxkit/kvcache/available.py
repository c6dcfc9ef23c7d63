"""How much memory there is, for this process and on this device."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ctxkit.settings import require

__all__ = ["MemoryState", "memory_state"]

_GROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryState:
    """Bytes on one device at one moment.

    Args:
        total: what this process could have: of the device, or its container's limit where that is less.
        free: what it could still get.
        held: what it has: resident memory, or what its allocator took from a GPU.
        used: of that, what live tensors use; on a CPU all of it, since nobody can tell.
    """

    total: int
    free: int
    held: int
    used: int

    @property
    def others(self) -> int:
        """What is neither free nor held here."""
        return max(0, self.total - self.free - self.held)

    def to_json(self) -> dict[str, int]:
        return {**asdict(self), "others": self.others}


def memory_state(device: str = "cpu") -> MemoryState:
    """The memory of a device now; some 50 microseconds. Errors: `MissingExtraError` without psutil or torch.

    On a CPU the limits of a control group (version 2) and of the address space count, too.
    """
    if device.startswith("cuda"):
        torch: Any = require("torch", extra="local", subject=device)
        free, total = torch.cuda.mem_get_info(device)
        held, used = torch.cuda.memory_reserved(device), torch.cuda.memory_allocated(device)
        # What the allocator holds and no tensor uses is as good as free.
        return MemoryState(total=total, free=free + held - used, held=held, used=used)
    psutil: Any = require("psutil", extra="local", subject="memory")
    machine, own = psutil.virtual_memory(), psutil.Process().memory_info()
    total, free = machine.total, machine.available
    for limit, rest in (_group_limit(), _address_limit(own.vms)):
        total, free = min(total, limit), min(free, rest)
    return MemoryState(total=int(total), free=max(0, int(free)), held=int(own.rss), used=int(own.rss))


def _group_limit(folder: Path = _GROUP) -> tuple[float, float]:
    """Limit and rest of the control group. Files that it has in memory are given back when it needs the room."""
    try:
        limit = (folder / "memory.max").read_text().strip()
        if limit == "max":
            return float("inf"), float("inf")
        used = int((folder / "memory.current").read_text())
        stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):
        return float("inf"), float("inf")
    return int(limit), int(limit) - used + int(stat.get("inactive_file", 0))


def _address_limit(mapped: int) -> tuple[float, float]:
    if sys.platform == "win32":
        return float("inf"), float("inf")
    import resource

    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return (float("inf"), float("inf")) if limit == resource.RLIM_INFINITY else (limit, limit - mapped)
