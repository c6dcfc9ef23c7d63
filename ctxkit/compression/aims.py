"""The parameters that every compressor takes, checked in one place."""

from __future__ import annotations

from ctxkit.checking import check_able, check_number, check_whole
from ctxkit.errors import ConfigError
from ctxkit.protocols import Embedder, TokenCounter

__all__ = ["check_aims"]


def check_aims(
    *, target: int | None, ratio: float | None, counter: TokenCounter | None, embedder: Embedder | None
) -> None:
    """What a compressor aims at, counts with and embeds with. Errors: `ConfigError`."""
    if target is not None:
        check_whole(target, "target", minimum=1, remedy="Give a whole number of tokens, 1 or more.")
    if ratio is not None:
        check_number(ratio, "ratio", minimum=1.0, remedy="Give more than 1: 3 makes it a third as long.")
        if ratio <= 1.0:
            raise ConfigError(f"ratio is {ratio!r}", remedy="Give more than 1: 3 makes it a third as long.")
    if counter is not None:
        check_able(counter, "count", "counter", remedy="Give a counter, such as get_counter('o200k_base').")
    if embedder is not None:
        check_able(embedder, "embed", "embedder", remedy="Give an embedder, or None to go by words alone.")
