"""ctxkit inside LangChain: a retriever, a text splitter, a document compressor and a chat-message history.

Needs the extra `langchain`. Every document that comes back says where it stands in its source: `metadata["start"]` and
`metadata["end"]` are exact character offsets, not the result of a search.

    from ctxkit import ContextEngine
    from ctxkit_adapters.langchain import CtxkitRetriever

    retriever = CtxkitRetriever(engine=ContextEngine.open("sqlite:///notes.db"), k=4)
    documents = retriever.invoke("How do I rotate the key?")
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from langchain_core.callbacks import CallbackManagerForRetrieverRun, Callbacks
from langchain_core.chat_history import BaseChatMessageHistory
from langchain_core.documents import BaseDocumentCompressor
from langchain_core.documents import Document as LangChainDocument
from langchain_core.messages import (
    BaseMessage,
    convert_to_messages,
    convert_to_openai_messages,
    message_to_dict,
    messages_from_dict,
)
from langchain_core.retrievers import BaseRetriever
from langchain_text_splitters import TextSplitter
from pydantic import ConfigDict, Field

from ctxkit.checking import check_kind
from ctxkit.documents import Candidate, Chunk, Document, Query, Span, document_id
from ctxkit.engine import ContextEngine
from ctxkit.errors import ConfigError
from ctxkit.messages import Message
from ctxkit.protocols import Chunker, Stage
from ctxkit.storage import Store
from ctxkit.tokens import get_counter
from ctxkit_adapters.carrying import carried, carry

__all__ = ["CtxkitChatMessageHistory", "CtxkitDocumentCompressor", "CtxkitRetriever", "CtxkitTextSplitter"]

FRAMEWORK = "langchain"


class CtxkitRetriever(BaseRetriever):
    """Finds chunks in a ctxkit store, after every stage of its engine.

    Args:
        engine: an open engine.
        k: how many documents; `invoke(query, k=3)` overrides it.
        filters: metadata that the documents must have.
        now: the time that recency counts from.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    engine: ContextEngine
    k: int = 4
    filters: dict[str, Any] = Field(default_factory=dict)
    now: datetime | None = None

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, k: int | None = None, **options: Any
    ) -> list[LangChainDocument]:
        if options:
            raise ConfigError(
                f"unknown options: {', '.join(sorted(options))}", subject="CtxkitRetriever", remedy="It takes k."
            )
        found = self.engine.search(query, self.k if k is None else k, filters=self.filters, now=self.now)
        return [_to_langchain(candidate) for candidate in found]


class CtxkitTextSplitter(TextSplitter):
    """Splits with any ctxkit chunker: nothing is lost, and offsets are exact even in repetitive text.

    Args:
        chunker: default `RecursiveChunker()`.
    """

    def __init__(self, chunker: Chunker | None = None) -> None:
        if chunker is None:
            from ctxkit.chunking import RecursiveChunker

            chunker = RecursiveChunker()
        # The base class wants sizes in characters; ours are in tokens and belong to the chunker.
        super().__init__(chunk_size=1, chunk_overlap=0, keep_separator=True, strip_whitespace=False)
        self.chunker = chunker

    def split_text(self, text: str) -> list[str]:
        return [chunk.text for chunk in self.chunker.chunk(Document.from_text(_checked(text)))]

    def create_documents(
        self, texts: list[str], metadatas: list[dict[Any, Any]] | None = None
    ) -> list[LangChainDocument]:
        texts = [_checked(text) for text in texts]
        metadatas = [{} for _ in texts] if metadatas is None else list(metadatas)
        if len(metadatas) != len(texts):
            raise ConfigError(
                f"{len(texts):,} texts came with {len(metadatas):,} metadatas",
                subject="CtxkitTextSplitter",
                remedy="Give one metadata for each text, or none at all.",
            )
        documents: list[LangChainDocument] = []
        for text, given in zip(texts, metadatas, strict=True):
            metadata = given or {}
            source = str(metadata.get("source", ""))
            for chunk in self.chunker.chunk(Document.from_text(text, source=source)):
                extra: dict[str, Any] = {
                    "start_index": chunk.span.start,
                    "start": chunk.span.start,
                    "end": chunk.span.end,
                    "token_count": chunk.token_count,
                }
                if chunk.heading_path:
                    extra["heading_path"] = list(chunk.heading_path)
                documents.append(LangChainDocument(page_content=chunk.text, metadata={**metadata, **extra}))
        return documents


class CtxkitDocumentCompressor(BaseDocumentCompressor):
    """Runs ctxkit stages (rerankers and compressors) over the documents of any LangChain retriever.

    What is kept is said in `metadata["kept"]`: pairs of offsets into the document that came in.

    Args:
        stages: run in this order.
        now: the time that recency counts from.
        room: the tokens that compressors aim at.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    stages: list[Any]
    now: datetime | None = None
    room: int | None = None

    def compress_documents(
        self, documents: Sequence[LangChainDocument], query: str, callbacks: Callbacks | None = None
    ) -> Sequence[LangChainDocument]:
        asked = Query(query, now=self.now, room=self.room)
        originals: dict[str, LangChainDocument] = {}
        candidates: list[Candidate] = []
        for rank, document in enumerate(documents):
            candidate = _from_langchain(document, rank)
            originals[candidate.chunk.id] = document
            candidates.append(candidate)
        for stage in self.stages:
            step: Stage = stage
            candidates = list(step(asked, candidates))
        return [_compressed(candidate, originals[candidate.chunk.id]) for candidate in candidates]


class CtxkitChatMessageHistory(BaseChatMessageHistory):
    """A dialogue in a ctxkit store: ordered by sequence, safe with several writers, messages as they came.

    A message is known by its id: adding it again changes nothing. What ctxkit's messages do not hold (metadata, usage,
    artifacts, invalid calls) goes along and comes back.

    Args:
        store: an open store, whose tenant owns the session.
        session_id: the session; it is made when the first message comes.
    """

    def __init__(self, store: Store, session_id: str) -> None:
        super().__init__()
        store.sessions.check(session_id)
        self.store = store
        self.session_id = session_id

    @property
    def messages(self) -> list[BaseMessage]:  # type: ignore[override]  # a property, as the base class allows
        return [_from_message(message) for message in self.store.sessions.messages(self.session_id)]

    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Append messages, all or none. Raises `ConfigError` for a role that ctxkit does not have."""
        self.store.sessions.append(self.session_id, [_to_message(message) for message in messages])

    def clear(self) -> None:
        """Delete the session, with what of it is archived."""
        self.store.sessions.delete(self.session_id)


def _checked(text: Any) -> str:
    if not isinstance(text, str):
        raise ConfigError(
            f"a text is {text!r:.60}", subject="CtxkitTextSplitter", remedy="Give each text as a str; leave out None."
        )
    return text


def _to_message(message: BaseMessage) -> Message:
    check_kind(message, BaseMessage, "a message", remedy="Give LangChain messages, such as HumanMessage.")
    ours = replace(_read(message), id=message.id or "")
    return ours if _written(ours) == message else carry(ours, FRAMEWORK, _nameless(message))


def _nameless(message: BaseMessage) -> dict[str, Any]:
    """The whole message but its id: that is the stored message's own, so that one that was read is the same again."""
    return message_to_dict(message.model_copy(update={"id": None}))


def _read(message: BaseMessage) -> Message:
    try:
        value = convert_to_openai_messages(message, include_id=False)
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise ConfigError(
            f"a message of type {type(message).__name__} cannot be kept ({error})",
            subject=message.id or "",
            remedy="Add system, human, AI and tool messages.",
        ) from error
    return Message.from_openai(value[0] if isinstance(value, list) else value)


def _from_message(message: Message) -> BaseMessage:
    raw = carried(message, FRAMEWORK, lambda value: _read(messages_from_dict([value])[0]))
    if raw is None:
        return _written(message)
    (found,) = messages_from_dict([raw])
    found.id = message.id or None
    return found


def _written(message: Message) -> BaseMessage:
    (converted,) = convert_to_messages([message.to_openai()])
    converted.id = message.id or None
    return converted


def _to_langchain(candidate: Candidate) -> LangChainDocument:
    chunk = candidate.chunk
    metadata = {key: value for key, value in chunk.metadata.items() if key != "key"}
    metadata |= {"start": chunk.span.start, "end": chunk.span.end, "score": candidate.score}
    if candidate.kept is not None:
        metadata["kept"] = [list(span) for span in candidate.kept]
    return LangChainDocument(page_content=candidate.text, metadata=metadata, id=chunk.id)


def _from_langchain(document: LangChainDocument, rank: int) -> Candidate:
    text = document.page_content
    source = str(document.metadata.get("source", ""))
    key = document_id(f"{rank}\x00{source}\x00{document.id or text}")
    chunk = Chunk(
        id=f"{key}:0-{len(text)}",
        document_id=key,
        span=Span(0, len(text)),
        text=text,
        token_count=get_counter().count(text),
        metadata=document.metadata,
    )
    score = document.metadata.get("score")
    # Without a score the order is the signal: the first is best.
    final = float(score) if isinstance(score, int | float) else 1.0 / (1 + rank)
    return Candidate(chunk, {"final": min(1.0, max(0.0, final))})


def _compressed(candidate: Candidate, original: LangChainDocument) -> LangChainDocument:
    metadata = {**original.metadata, "score": candidate.score}
    if candidate.kept is not None:
        metadata["kept"] = [list(span) for span in candidate.kept]
    return LangChainDocument(page_content=candidate.text, metadata=metadata, id=original.id)
