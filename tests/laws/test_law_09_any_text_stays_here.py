"""Law 9 as a property: whatever the text, ingesting, searching, assembling and asking look nothing up."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import pytest
from hypothesis import given

from ctxkit import ContextEngine, Document
from ctxkit.testing import EchoModel, HashEmbedder
from tests.strategies import stored_texts


@contextmanager
def cut_off() -> Iterator[list[str]]:
    """Refuse and record every attempt to look up a name, to connect or to send."""
    tried: list[str] = []

    def refuse(*arguments: object, **options: object) -> None:
        tried.append(repr(arguments))
        raise OSError("there is no network")

    names = ("connect", "connect_ex", "sendto")
    with mock.patch.object(socket, "getaddrinfo", refuse), mock.patch.object(socket, "create_connection", refuse):
        patches = [mock.patch.object(socket.socket, name, refuse) for name in names]
        for patch in patches:
            patch.start()
        try:
            yield tried
        finally:
            for patch in patches:
                patch.stop()


@pytest.fixture(scope="module")
def engine() -> Iterator[ContextEngine]:
    with ContextEngine.open("sqlite://", embedder=HashEmbedder()) as opened:
        yield opened


@given(text=stored_texts)
def test_any_text_stays_on_this_machine(engine: ContextEngine, text: str) -> None:
    with cut_off() as tried:
        report = engine.ingest_documents([Document.from_text(text, source="the document")])
        assert not report.failed
        question = text.strip()[:200] or "why?"
        engine.search(question)
        engine.assemble(question, budget=8_000)
        answer = engine.ask(question, model=EchoModel())
    assert answer.completion.model
    assert tried == []
