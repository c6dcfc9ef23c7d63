"""The compressed key-value cache of local models: codecs, the cache itself, and block top-k attention."""

from ctxkit.kvcache.codecs import Codec, get_codec

__all__ = ["Codec", "get_codec"]
