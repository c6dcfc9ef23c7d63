"""How keys and values are packed: one file a codec, behind one protocol.

| codec | bits a number | keys | values |
|---|---|---|---|
| `int4` | 4.5 | per token, rotated | per token, rotated |
| `int4-hq` | 4.75 | per channel, 32 tokens a group | per token, rotated |
| `int8` | 8.5 | per token | per token |
| `none` | as computed | as they are | as they are |
"""

from ctxkit.kvcache.codecs.protocol import Codec, get_codec

__all__ = ["Codec", "get_codec"]
