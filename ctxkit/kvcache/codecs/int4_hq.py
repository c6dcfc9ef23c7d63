"""Four bits a number, 4.75 with everything that belongs to them, and less loss than `int4`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ctxkit.kvcache.codecs.int4 import Int4Codec
from ctxkit.kvcache.codecs.packing import channel_group

__all__ = ["Int4HQCodec"]


@dataclass(frozen=True, kw_only=True)
class Int4HQCodec(Int4Codec):
    """As `int4`, with an offset a channel for 32 tokens instead of 64, and groups of 32 channels for values too."""

    group_tokens: ClassVar[int] = 32

    @property
    def name(self) -> str:
        return super().name.replace("int4", "int4-hq", 1)

    def _value_group(self, dim: int) -> int:
        return channel_group(dim, codec=self.name)
