"""What every reader must do."""

from __future__ import annotations

import re

import pytest

from ctxkit.documents import Document
from ctxkit.errors import CtxkitError
from ctxkit.protocols import Reader

__all__ = ["ReaderConformance"]

_HOSTILE = (
    b"",
    b"\x00",
    b"\xff\xfe",
    b"\xed\xa0\x80",
    b"%PDF-1.7\n%broken",
    b"PK\x03\x04broken",
    b"<|endoftext|>\x00<html>",
    bytes(range(256)) * 8,
)


class ReaderConformance:
    """What every `Reader` must do. Override `make_reader` and `sample`.

    `sample` returns the bytes of a small file, a name for it, and texts that the document must hold.
    """

    def make_reader(self) -> Reader:
        raise NotImplementedError

    def sample(self) -> tuple[bytes, str, list[str]]:
        raise NotImplementedError

    def test_it_is_a_reader(self) -> None:
        assert isinstance(self.make_reader(), Reader)

    def test_the_text_and_the_source_are_there(self) -> None:
        data, source, expected = self.sample()
        document = self.make_reader().read(data, source=source)
        assert isinstance(document, Document)
        assert document.source == source
        assert document.title
        assert [text for text in expected if text not in document.text] == []
        assert isinstance(document.metadata["format"], str)

    def test_reading_twice_gives_the_same(self) -> None:
        data, source, _ = self.sample()
        first, second = (self.make_reader().read(data, source=source) for _ in range(2))
        assert first == second
        assert first.content_hash == second.content_hash

    def test_the_source_makes_the_id(self) -> None:
        data, source, _ = self.sample()
        reader = self.make_reader()
        assert reader.read(data, source=source).id == reader.read(data, source=source).id
        assert reader.read(data, source=source).id != reader.read(data, source=f"other/{source}").id

    @pytest.mark.parametrize("data", _HOSTILE, ids=range(len(_HOSTILE)))
    def test_hostile_bytes_give_a_storable_document_or_our_error(self, data: bytes) -> None:
        _, source, _ = self.sample()
        document, error = _read(self.make_reader(), data, source)
        assert error is None or error.subject == source
        for text in (document.text, document.title) if document else ():
            found = re.search("[\x00\ud800-\udfff]", text)
            assert not found, f"no database stores {text!r:.200}: character {found.start()} is {found[0]!r}"

    def test_a_file_cut_short_gives_a_document_or_our_error(self) -> None:
        data, source, _ = self.sample()
        for size in range(0, len(data), max(1, len(data) // 16)):
            _, error = _read(self.make_reader(), data[:size], source)
            assert error is None or error.remedy


def _read(reader: Reader, data: bytes, source: str) -> tuple[Document | None, CtxkitError | None]:
    try:
        return reader.read(data, source=source), None
    except CtxkitError as error:
        return None, error
