"""Assembly: one prompt that provably fits its budget, with the source of every token known."""

from __future__ import annotations

from ctxkit.assembly.assembler import assemble
from ctxkit.assembly.packing import Packed, pack

__all__ = ["Packed", "assemble", "pack"]
