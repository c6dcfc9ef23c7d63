"""Runs in the peers' environment, where ctxkit is not: LangChain's time-weighted retriever over scores that it is fed.

The input is a JSON list of questions, each a list of [score, age in hours]; `rates` are the decay rates. The output has
for each rate and question the places of the first `k` candidates.
"""

from __future__ import annotations

import json
import sys
from datetime import datetime, timedelta
from typing import Any

from langchain_classic.retrievers.time_weighted_retriever import TimeWeightedVectorStoreRetriever
from langchain_core.documents import Document
from langchain_core.vectorstores import VectorStore


class Fed(VectorStore):
    """A store that gives what it was given."""

    def __init__(self, scored: list[tuple[Document, float]]) -> None:
        self.scored = scored

    def similarity_search_with_relevance_scores(self, query: str, k: int = 4, **_: Any) -> list[tuple[Document, float]]:
        return self.scored

    def similarity_search(self, query: str, k: int = 4, **_: Any) -> list[Document]:
        return [document for document, _ in self.scored]

    @classmethod
    def from_texts(cls, *arguments: Any, **_: Any) -> Fed:
        raise NotImplementedError


def places(question: list[tuple[float, float]], rate: float, k: int) -> list[int]:
    # It asks the clock: documents are dated back from now by the age that they have when the question is asked.
    now = datetime.now()
    documents = [
        Document(str(at), metadata={"buffer_idx": at, "last_accessed_at": now - timedelta(hours=age)})
        for at, (_, age) in enumerate(question)
    ]
    retriever = TimeWeightedVectorStoreRetriever(
        vectorstore=Fed([(document, score) for document, (score, _) in zip(documents, question, strict=True)]),
        memory_stream=documents,
        decay_rate=rate,
        k=k,
    )
    return [int(found.page_content) for found in retriever.invoke("question")]


request = json.load(sys.stdin)
json.dump(
    [[places(question, rate, request["k"]) for question in request["questions"]] for rate in request["rates"]],
    sys.stdout,
)
