"""Runs in the peers' environment, where ctxkit is not: LangChain's and LlamaIndex's filters, over sentences.

The request: `items`, each `question`, `sentences` and `targets` (tokens by o200k_base); `vectors`, a file of the MiniLM
vectors of all texts in `texts`, so that both sides use the same ones. The answer: for each item and target, the numbers
of the sentences that each system keeps. Each is given all sentences at once, and the mildest setting that fits.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

warnings.simplefilter("ignore")


@cache
def encoding() -> Any:
    import tiktoken

    return tiktoken.get_encoding("o200k_base")


def count(text: str) -> int:
    return len(encoding().encode(text, disallowed_special=()))


class Known:
    """The vectors that came with the request."""

    def __init__(self, texts: Sequence[str], path: str) -> None:
        self._rows = {text: row for row, text in enumerate(texts)}
        self._vectors = np.load(path).astype(np.float32)

    def __call__(self, texts: Sequence[str]) -> list[Any]:
        return [self._vectors[self._rows[text]] for text in texts]


def embeddings_filter(embed: Known, question: str, sentences: Sequence[str]) -> list[int]:
    """All sentences, the most similar first: the first k of them are what `k=k` gives."""
    from langchain_classic.retrievers.document_compressors import EmbeddingsFilter
    from langchain_core.documents import Document
    from langchain_core.embeddings import Embeddings

    class Ours(Embeddings):
        def embed_documents(self, texts: list[str]) -> list[Any]:
            return embed(texts)

        def embed_query(self, text: str) -> Any:
            return embed([text])[0]

    documents = [Document(page_content=text, metadata={"place": place}) for place, text in enumerate(sentences)]
    kept = EmbeddingsFilter(embeddings=Ours(), k=len(sentences)).compress_documents(documents, question)
    return [one.metadata["place"] for one in kept]


def sentence_optimizer(embed: Known, question: str, sentences: Sequence[str]) -> list[int]:
    """All sentences in the optimizer's order, which the first share of them, `percentile_cutoff`, is taken from."""
    from llama_index.core.base.embeddings.base import BaseEmbedding
    from llama_index.core.postprocessor import SentenceEmbeddingOptimizer
    from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

    marks = [f"{place}\u0001" for place in range(len(sentences))]

    class Model(BaseEmbedding):  # type: ignore[misc]
        def _get_query_embedding(self, query: str) -> Any:
            return embed([query])[0]

        async def _aget_query_embedding(self, query: str) -> Any:
            return embed([query])[0]

        def _get_text_embedding(self, text: str) -> Any:
            return embed([sentences[int(text[:-1])]])[0]

        def _get_text_embeddings(self, texts: list[str]) -> list[Any]:
            return embed([sentences[int(text[:-1])] for text in texts])

    stage = SentenceEmbeddingOptimizer(
        embed_model=Model(), percentile_cutoff=1.0, context_before=0, context_after=0, tokenizer_fn=lambda _: marks
    )
    node = NodeWithScore(node=TextNode(text="".join(marks)))
    (kept,) = stage.postprocess_nodes([node], QueryBundle(question))
    return [int(mark) for mark in kept.node.get_content().replace(" ", "").split("\u0001") if mark]


def fitting(order: Sequence[int], sentences: Sequence[str], target: int) -> list[int]:
    """The longest beginning of the order whose sentences, joined as they came, fit."""
    low, high = 0, len(order)
    while low < high:
        middle = (low + high + 1) // 2
        text = "".join(sentences[place] for place in sorted(order[:middle]))
        low, high = (middle, high) if count(text) <= target else (low, middle - 1)
    return sorted(order[:low])


def main() -> None:
    request = json.load(sys.stdin)
    output, sys.stdout = sys.stdout, sys.stderr
    embed = Known(request["texts"], request["vectors"])
    for item in request["items"]:
        row = {}
        for name, system in (("embeddings_filter", embeddings_filter), ("sentence_optimizer", sentence_optimizer)):
            order = system(embed, item["question"], item["sentences"])
            row[name] = [fitting(order, item["sentences"], target) for target in item["targets"]]
        output.write(json.dumps(row) + "\n")
        output.flush()


if __name__ == "__main__":
    main()
