"""Text from a stream of bytes, piece by piece, for what is too long to be read whole or is still being written."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from dataclasses import replace
from typing import BinaryIO

from ctxkit.documents import Document
from ctxkit.reading.decoding import clean
from ctxkit.reading.files import read_bytes
from ctxkit.reading.formats import detect

__all__ = ["read_stream"]

_HEAD = 8192
_PIECE = 1 << 16
_STREAMED = ("text", "markdown", "code")


def read_stream(stream: BinaryIO, *, source: str) -> tuple[Document, Iterator[str]]:
    """A document without its text, and the text in pieces, each as soon as it is there.

    The first 8 KiB tell format and title. Text, Markdown and source code in UTF-8 are decoded as they arrive, in
    bounded memory; a byte that is not UTF-8 becomes U+FFFD, and so do NUL and lone surrogates. Anything else (HTML,
    PDF, another encoding) is read to its end first, as `read_bytes` does.

    Raises:
        ReadingError: as for `read_bytes`.

    Example:
        >>> import io
        >>> head, pieces = read_stream(io.BytesIO(b"# Keys\\n\\nRotate them."), source="keys.md")
        >>> head.title, "".join(pieces)
        ('Keys', '# Keys\\n\\nRotate them.')
    """
    head = b""
    while len(head) < _HEAD and (data := _some(stream)):
        head += data
    decoder = codecs.getincrementaldecoder("utf-8-sig")("strict")
    try:
        first = decoder.decode(head)
        streamed = len(head) >= _HEAD and detect(head[:_HEAD], source).name in _STREAMED
    except UnicodeDecodeError:
        streamed = False
    if not streamed or not first.strip():
        document = read_bytes(head + stream.read(), source=source)
        return replace(document, text=""), iter([document.text])
    # The title and the fields of the head; what counts the whole, such as its size, is not known yet.
    document = read_bytes(first.encode(), source=source)
    metadata = {name: value for name, value in document.metadata.items() if name not in ("size", "replaced_characters")}
    decoder.errors = "replace"
    return replace(document, text="", metadata=metadata), _pieces(first, stream, decoder)


def _pieces(first: str, stream: BinaryIO, decoder: codecs.IncrementalDecoder) -> Iterator[str]:
    yield clean(first)[0]
    while data := _some(stream):
        if text := decoder.decode(data):
            yield clean(text)[0]
    if text := decoder.decode(b"", True):
        yield clean(text)[0]


def _some(stream: BinaryIO) -> bytes:
    """What is there already, but for nothing at the end only."""
    read = getattr(stream, "read1", stream.read)
    data: bytes = read(_PIECE)
    return data
