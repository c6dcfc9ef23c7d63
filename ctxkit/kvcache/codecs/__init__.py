"""How keys and values are packed: one file a codec, behind one protocol.

| codec | bits a number | keys | values |
|---|---|---|---|
| `int4` | 4.5 | rotated, groups of 32 channels, offsets a channel for 64 tokens | rotated, groups of 64 channels |
| `int4-hq` | 4.75 | five bits, rotated, groups of 64 channels, offsets for 32 tokens | rotated, groups of 64 channels |
| `int8` | 8.5 | groups of 32 channels | groups of 32 channels |
| `none` | as computed | as they are | as they are |
"""

from ctxkit.kvcache.codecs.protocol import Codec, get_codec

__all__ = ["Codec", "get_codec"]
