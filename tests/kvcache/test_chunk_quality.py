"""With a real model: chunks that were read ahead are worth what chunks are worth that are read in place."""

from __future__ import annotations

from typing import Any

import pytest

from ctxkit import ContextEngine, Document
from ctxkit.models import LocalModel
from ctxkit.prompts import CompletionOptions

pytestmark = pytest.mark.model

TEXTS = {
    "keys.md": "The signing key is rotated every ninety days by the release manager.",
    "food.md": "The canteen opens at eleven, and on Fridays there is fish.",
    "copy.md": "Backups are kept for one year in the cold store in Reykjavik.",
}


def test_answers_are_found_in_chunks_in_an_order_never_seen(local_model: LocalModel, tmp_path: Any) -> None:
    options = CompletionOptions(max_tokens=16)
    with ContextEngine.open("sqlite://", embedder=None, kv=tmp_path, kv_chunks=True) as engine:
        engine.ingest_documents([Document.from_text(text, source=source) for source, text in TEXTS.items()])
        assert engine.precompute("local").stored == len(TEXTS)
        found = engine.search("signing key canteen Friday backups", k=3)
        assert len(found) == 3
        model: Any = engine.model("local")
        for order in ([0, 1, 2], [2, 1, 0]):
            chosen = [found[number] for number in order]
            answer = engine.ask("In which city are the backups kept?", candidates=chosen, options=options)
            assert model.chunks.last.found == 3
            assert "Reykjavik" in answer.text
