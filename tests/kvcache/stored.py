"""Blocks of a few numbers that follow from their ids, so that a wrong answer shows."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from ctxkit.kvcache.blocks import Block
from ctxkit.kvcache.identity import BLOCK_TOKENS, block_keys

ROOT = "ab" * 32
OTHER_ROOT = "cd" * 32


def ids_of(number: int, blocks: int) -> list[int]:
    """A prompt of that many blocks; of another number all blocks are others."""
    return [(number * 7919 + index * 31) % 50_000 for index in range(blocks * BLOCK_TOKENS)]


def payload_of(block: Block, *, numbers: int = 64) -> dict[str, Any]:
    return _payload(block.key, numbers)


@cache
def _payload(key: str, numbers: int) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(int(key[:12], 16))
    return {
        "0.keys": torch.randn(1, 1, numbers, generator=generator),
        "0.scales": torch.randn(3, generator=generator).half(),
    }


def blocks_of(ids: list[int], *, root: str = ROOT, lineage: Any = "exact") -> list[Block]:
    blocks, parent = [], root
    for key, block_ids in block_keys(root, ids):
        blocks.append(Block(parent=parent, ids=block_ids, lineage=lineage, codec="none/1", layout=((0,),)))
        parent = key
    return blocks


def same(left: Any, right: Any) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)
