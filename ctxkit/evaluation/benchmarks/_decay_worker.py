"""Runs in the peers' environment, where ctxkit is not: LangChain's time-weighted retriever over scores that it is fed.

The input has `questions`, each a list of [score, age in hours], the decay `rates` and `k`. The output has for each rate
and question the places of the first `k` candidates.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

Places = Callable[[Sequence[tuple[float, float]], float, int], list[int]]


def peer() -> Places:
    """What its retriever makes of one question's scores and ages."""
    from langchain_classic.retrievers.time_weighted_retriever import TimeWeightedVectorStoreRetriever
    from langchain_core.documents import Document
    from langchain_core.vectorstores import VectorStore

    class Fed(VectorStore):  # type: ignore[misc, unused-ignore]
        """A store that gives what it was given."""

        def __init__(self, scored: list[tuple[Any, float]]) -> None:
            self.scored = scored

        def similarity_search_with_relevance_scores(self, query: str, k: int = 4, **_: Any) -> list[tuple[Any, float]]:
            return self.scored

        def similarity_search(self, query: str, k: int = 4, **_: Any) -> list[Any]:
            return [document for document, _ in self.scored]

        @classmethod
        def from_texts(cls, *arguments: Any, **_: Any) -> Any:
            return cls([])

    def places(question: Sequence[tuple[float, float]], rate: float, k: int) -> list[int]:
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

    return places


def main() -> None:
    request = json.load(sys.stdin)
    places = peer()
    json.dump(
        [[places(question, rate, request["k"]) for question in request["questions"]] for rate in request["rates"]],
        sys.stdout,
    )


if __name__ == "__main__":
    main()
