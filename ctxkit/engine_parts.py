"""What an engine is made of: its store and its stages, each made when it is first needed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from ctxkit.checking import check_whole
from ctxkit.composing import check_part_names, chunker_of, default_embedder, part_of, sentences_of, stages_of
from ctxkit.errors import ConfigError
from ctxkit.protocols import ChatCounter, Chunker, Embedder, EntityExtractor, Model, Retriever, Stage, Window

if TYPE_CHECKING:
    from ctxkit.compression import SentenceStore
    from ctxkit.kvcache.store import BlockStore
    from ctxkit.recall import HistoryRetriever
    from ctxkit.rollout import Experiments
    from ctxkit.storage import Store
    from ctxkit.templates import TemplateRegistry

__all__ = ["DEFAULT_COUNTER", "EngineParts"]

DEFAULT_COUNTER = "openai:gpt-4o"
"""Counts prompts that are assembled for no model in particular."""


class EngineParts:
    """The store and the stages of a `ContextEngine`, which says what each argument is."""

    def __init__(
        self,
        store: Store,
        *,
        chunker: Chunker | str = "graph",
        embedder: Embedder | str | None = "auto",
        extractor: EntityExtractor | str | None = "light",
        retriever: Retriever | None = None,
        stages: Sequence[Stage | str] = (),
        window: Window | None = None,
        candidates: int = 20,
        kv: BlockStore | str | Path | None = None,
        kv_codec: str = "none",
        kv_chunks: bool = False,
        sentence_vectors: bool = False,
    ) -> None:
        check_whole(candidates, "candidates", minimum=1)
        check_part_names({"chunker": chunker, "embedder": embedder, "extractor": extractor, "kv_codec": kv_codec})
        if kv is None and (kv_chunks or kv_codec != "none"):
            raise ConfigError(
                f"{'kv_chunks' if kv_chunks else 'kv_codec'} is given, and no store of keys and values",
                remedy="Give a folder for it too: kv=FOLDER, on the command line --kv FOLDER.",
            )
        self.store = store
        self.stages = stages_of(stages)
        self.candidates = candidates
        self._chunker = chunker
        self._embedder = embedder
        self._extractor = extractor
        self._retriever = retriever
        self._window = window
        self._kv, self._kv_codec, self._kv_chunks = kv, kv_codec, kv_chunks
        self._sentence_vectors = sentence_vectors
        self._models: dict[str, Model] = {}

    def close(self) -> None:
        try:
            for model in self._models.values():
                if callable(close := getattr(model, "close", None)):
                    close()
        finally:
            self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @cached_property
    def chunker(self) -> Chunker:
        return chunker_of(self._chunker, self._extractor)

    @cached_property
    def embedder(self) -> Embedder | None:
        return part_of("embedder", default_embedder() if self._embedder == "auto" else self._embedder)

    @cached_property
    def extractor(self) -> EntityExtractor | None:
        return part_of("extractor", self._extractor)

    @cached_property
    def retriever(self) -> Retriever:
        from ctxkit.retrieval import Hybrid

        return Hybrid(self.store, self.embedder) if self._retriever is None else self._retriever

    @cached_property
    def window(self) -> Window:
        from ctxkit.history import TailWindow

        return TailWindow() if self._window is None else self._window

    @cached_property
    def recaller(self) -> HistoryRetriever:
        """Finds what was said in the past of a session."""
        from ctxkit.recall import HistoryRetriever

        return HistoryRetriever(self.store, self.embedder)

    @cached_property
    def sentences(self) -> SentenceStore | None:
        """What an ingest with `sentence_vectors` prepares for `SentenceCompressor`; None without it."""
        return sentences_of(self.store) if self._sentence_vectors else None

    @cached_property
    def templates(self) -> TemplateRegistry:
        from ctxkit.templates import TemplateRegistry

        return TemplateRegistry(self.store)

    @cached_property
    def experiments(self) -> Experiments:
        from ctxkit.rollout import Experiments

        return Experiments(self.store)

    def model(self, model: str | Model) -> Model:
        """The model of that name (`local`, `openai:gpt-4o`, `anthropic:…`); each is loaded once per engine."""
        if not isinstance(model, str):
            return model
        if model not in self._models:
            from ctxkit.models import get_model

            local = self._kv is not None and model.partition(":")[0] == "local"
            options: dict[str, Any] = {"kv": self._kv, "kv_codec": self._kv_codec, "tenant": self.store.tenant}
            options = {**options, "kv_chunks": self._kv_chunks} if local else {}
            self._models[model] = get_model(model, **options)
        return self._models[model]

    def target(self, model: str | Model | None = None) -> tuple[ChatCounter, int]:
        """The chat counter and the window of a model; loads no weights. Without one, those of `DEFAULT_COUNTER`."""
        if isinstance(model, str):
            model = self._models.get(model, model)
        if model is not None and not isinstance(model, str):
            return model.counter, model.window
        from ctxkit.models import get_chat_counter, get_window

        spec = model or DEFAULT_COUNTER
        return get_chat_counter(spec), get_window(spec)
