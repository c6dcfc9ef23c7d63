"""Eviction: tokens that a request can do without, chosen by a method and freed. Off unless asked for."""

from ctxkit.kvcache.eviction.entropy_gate import EntropyGate
from ctxkit.kvcache.eviction.expected_attention import ExpectedAttention
from ctxkit.kvcache.eviction.kvzip import KVzip
from ctxkit.kvcache.eviction.protocol import Evicted, Eviction, Evictor, evict
from ctxkit.kvcache.eviction.reading import Queries, Reading, observe, per_layer_masks
from ctxkit.kvcache.eviction.snapkv import SnapKV

__all__ = [
    "EntropyGate",
    "Evicted",
    "Eviction",
    "Evictor",
    "ExpectedAttention",
    "KVzip",
    "Queries",
    "Reading",
    "SnapKV",
    "evict",
    "observe",
    "per_layer_masks",
]
