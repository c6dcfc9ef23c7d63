"""The compressed key-value cache of local models: codecs, the cache itself, and block top-k attention."""

from ctxkit.kvcache.cache import CompressedCache
from ctxkit.kvcache.codecs import Codec, get_codec
from ctxkit.kvcache.memory import MemoryReport
from ctxkit.kvcache.top_k import BlockTopK, block_top_k

__all__ = ["BlockTopK", "Codec", "CompressedCache", "MemoryReport", "block_top_k", "get_codec"]
