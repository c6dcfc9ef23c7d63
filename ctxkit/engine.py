"""The engine: opens a store, composes the stages, and is what most applications import."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctxkit.answers import Answer, answered
from ctxkit.checking import check_kind, check_whole
from ctxkit.composing import budget_for, check_part_names, find, paths_of, payload_of, recalling
from ctxkit.documents import Candidate, Document, Query
from ctxkit.engine_parts import EngineParts
from ctxkit.errors import ProviderError
from ctxkit.ingest import Ingestion, IngestReport, below, forget_vanished, vanished
from ctxkit.messages import Message
from ctxkit.prompts import Budget, Completion, CompletionDelta, CompletionOptions, Prompt
from ctxkit.protocols import Model
from ctxkit.settings import default_store, default_tenant
from ctxkit.stage_inputs import check_candidates
from ctxkit.trace import Trace

if TYPE_CHECKING:
    from ctxkit.precomputing import Precomputed
    from ctxkit.storage import Encryption
    from ctxkit.templates import Template

__all__ = ["ContextEngine"]


class ContextEngine(EngineParts):
    """Opens a store, composes the stages, and does the four things an application wants.

    Args:
        store: from `Store.open`, or use `ContextEngine.open`.
        chunker: any `Chunker`, or a registered name; default `graph`, at most 256 tokens a chunk.
        embedder: any `Embedder`, a registered name, `auto` (MiniLM where the `local` extra is installed, else none) or
            None for lexical retrieval only.
        extractor: any `EntityExtractor`, a registered name, or None for no graph; its entities are stored with the
            chunks, and make the entity graph. Default `light`: by rule, no model. A chunker that is given as an object
            and finds entities itself keeps its own.
        retriever: any `Retriever`; default the hybrid of dense and lexical.
        stages: rerankers and compressors, or registered names, run in this order on what the retriever found.
        window: what of a session's history is sent; default the newest whole exchanges that fit.
        candidates: how many chunks to retrieve for a prompt.
        kv: a folder or a `BlockStore` where local models keep the keys and values of prompts, for this store's tenant.
        kv_codec: how they are packed; `none` changes no bit of an answer.
        kv_chunks: local models use the chunks that `precompute` read ahead into `kv`; approximate, so off by default.
        sentence_vectors: an ingest also embeds each sentence and keeps the vectors beside the store (two bytes a
            component), so that a compressor with `sentences=engine.sentences` embeds only the question.

    Example:
        >>> from ctxkit import Budget, ContextEngine, Document
        >>> engine = ContextEngine.open("sqlite://", embedder=None)
        >>> report = engine.ingest_documents([Document.from_text("Keys rotate monthly.", source="keys.md")])
        >>> engine.search("when do keys rotate?")[0].text
        'Keys rotate monthly.'
    """

    @classmethod
    def open(
        cls,
        url: str | None = None,
        *,
        tenant: str | None = None,
        create: bool = True,
        encryption: Encryption | None = None,
        **parts: Any,
    ) -> ContextEngine:
        """Open or create the store at `url` (default `$CTXKIT_STORE`); `parts` are the stages of the constructor.

        With `encryption` what sessions say is encrypted at rest.

        Raises:
            StorageError: the store cannot be opened, is not ours, or is of a newer version.
            ConfigError: a part is wrong; one whose name is not known is refused before the store is opened.
        """
        from ctxkit.storage import Store

        check_part_names(parts)
        address = default_store() if url is None else url
        name = default_tenant() if tenant is None else tenant
        return cls(Store.open(address, tenant=name, create=create, encryption=encryption), **parts)

    # Ingest.

    def ingest(
        self,
        paths: str | Path | Iterable[str | Path],
        *,
        prune: bool = False,
        on_document: Callable[[str, IngestReport], None] | None = None,
    ) -> IngestReport:
        """Read files and folders into the store: new and changed documents are chunked, embedded and stored.

        Each document is committed alone, so an interrupted ingest resumes where it stopped. One bad file never stops
        the batch.

        Args:
            paths: files and folders; folders are walked with their `.gitignore` rules.
            prune: also delete documents under these paths whose files are gone; never below a path that could not
                be read.
            on_document: called after each document, for progress.
        """
        from ctxkit.reading import read_paths

        roots = paths_of(paths)
        stored = below(self.store, roots) if prune else {}
        report, seen = self._ingestion(on_document).run(read_paths(roots))
        if prune:
            gone = vanished(self.store, stored, seen, report)
            report.deleted = self.store.documents.delete(gone) if gone else 0
        if self.sentences is not None:
            forget_vanished(self.sentences, self.store, report)
        return report

    def ingest_documents(
        self, documents: Iterable[Document], *, on_document: Callable[[str, IngestReport], None] | None = None
    ) -> IngestReport:
        """Store documents that the application has read itself."""
        check_kind(documents, Iterable, "documents", remedy="Give a list of Document, or another iterable.")
        return self._ingestion(on_document).run(documents)[0]

    def _ingestion(self, on_document: Callable[[str, IngestReport], None] | None) -> Ingestion:
        return Ingestion(
            store=self.store,
            chunker=self.chunker,
            embedder=self.embedder,
            extractor=self.extractor,
            on_document=on_document,
            sentences=self.sentences,
        )

    def precompute(
        self,
        model: str | Model = "local",
        *,
        template: str | Template | None = None,
        payload: Mapping[str, Any] | str | None = None,
        on_chunk: Callable[[Precomputed], None] | None = None,
    ) -> Precomputed:
        """Read every stored chunk ahead for prompts of a template, so that answers need not; what is there is skipped.

        Needs `kv` and `kv_chunks`. A prompt with a history or another payload begins otherwise, and reads its chunks.

        Raises:
            ConfigError: the model keeps no chunks. KVCacheError: its chunks cannot be used at another position.
        """
        from ctxkit.precomputing import chunk_cache, learn_chunks, stored_chunks

        target: Any = self.model(model)
        cache = chunk_cache(target)
        return learn_chunks(
            stored_chunks(self.store),
            model=target,
            cache=cache,
            assemble=lambda chosen: self.assemble(
                "?", template=template, payload=payload, model=target, candidates=chosen
            ),
            on_chunk=on_chunk,
        )

    # Search, assemble, ask.

    def search(
        self, text: str, k: int = 10, *, filters: Mapping[str, Any] | None = None, now: datetime | None = None
    ) -> list[Candidate]:
        """The best `k` chunks for a question, after every stage, best first."""
        check_whole(k, "k", minimum=1)
        query = Query(text, now=now, filters={} if filters is None else filters, tenant=self.store.tenant)
        return find(self.retriever, self.stages, query, max(k, self.candidates if self.stages else k), Trace())[:k]

    def assemble(
        self,
        question: str,
        *,
        session: str | None = None,
        template: str | Template | None = None,
        payload: Mapping[str, Any] | str | None = None,
        budget: Budget | int | None = None,
        model: str | Model | None = None,
        filters: Mapping[str, Any] | None = None,
        now: datetime | None = None,
        tools: Sequence[Mapping[str, Any]] = (),
        candidates: Sequence[Candidate] | None = None,
        recall: bool | float = False,
        record: bool = False,
    ) -> Prompt:
        """One prompt that fits: template, history of the session, retrieved context and the question.

        Args:
            session: its stored messages are the history; nothing is written.
            template: a `Template`, or a reference such as `answer@production`; default a plain answering template.
            payload: the template's variables, or a stored payload: `brand`, `brand@3`, `sha256:…`.
            budget: tokens; default the model's window with a quarter, at most 1,024, reserved for the answer.
            model: whose tokenizer and chat format count; default OpenAI's `o200k_base` chat format.
            now: the time that recency counts from; give it for a prompt that can be replayed.
            candidates: use these instead of retrieving.
            recall: quote what bears on the question of the older dialogue that the window leaves out; a number is the
                part of the history's room that it may have, half by default.
            record: store what the prompt is made of, so that `replay` gives it back.

        Raises:
            BudgetError: the mandatory parts do not fit; it names each part and by how much.
        """
        from ctxkit.assembly import assemble

        counter, window = self.target(model)
        trace = Trace()
        query = Query(
            question, now=now, filters={} if filters is None else filters, session=session, tenant=self.store.tenant
        )
        chosen, values = self._template(template), payload_of(self.store, payload)
        history = self.store.sessions.messages(session) if session is not None else ()
        past = recalling(self.window, recall, self.recaller, session, history, now) if recall else self.window
        if candidates is not None:
            check_candidates(query, candidates)
        used: list[Candidate] = list(candidates or ())

        def retrieve(asked: Query) -> Sequence[Candidate]:
            used.extend(find(self.retriever, self.stages, asked, self.candidates, trace))
            return used

        prompt = assemble(
            query,
            template=chosen,
            payload=values,
            history=history,
            candidates=retrieve if candidates is None else used,
            budget=budget_for(budget, window, limited=model is not None),
            counter=counter,
            window=past,
            tools=tools,
            trace=trace,
        )
        if record:
            from ctxkit.replaying import Request, record_prompt

            parts = (self.retriever, *self.stages, past)
            request = Request.of(query, len(history), template, payload, model, parts)
            record_prompt(self.store, prompt, request, template=chosen, payload=values, candidates=used)
        return prompt

    def replay(self, fingerprint: str) -> Prompt:
        """A recorded prompt again, byte for byte, whatever has changed since; 8 digits of its fingerprint are enough.

        Raises `NotFoundError` for one that was not recorded, `StorageError` for one that is damaged.
        """
        from ctxkit.replaying import read_prompt

        return read_prompt(self.store, fingerprint).prompt

    def _template(self, template: str | Template | None) -> Template:
        from ctxkit.templates import DEFAULT_TEMPLATE

        return self.templates.get(template) if isinstance(template, str) else template or DEFAULT_TEMPLATE

    def ask(
        self,
        question: str,
        *,
        model: str | Model = "local",
        session: str | None = None,
        options: CompletionOptions | None = None,
        **assembly: Any,
    ) -> Answer:
        """Assemble a prompt, have a model answer it, and say which spans the answer rests on.

        With a session, the question and the answer are appended to it together, after the answer is complete.
        Takes every argument of `assemble`.
        """
        prompt, target, options = self._prepare(question, model, session, options, assembly)
        return self._answered(question, session, prompt, target.complete(prompt, options))

    def stream(
        self,
        question: str,
        *,
        model: str | Model = "local",
        session: str | None = None,
        options: CompletionOptions | None = None,
        **assembly: Any,
    ) -> Iterator[CompletionDelta | Answer]:
        """Like `ask`, but yields the answer's text as it comes, and the `Answer` last."""
        prompt, target, options = self._prepare(question, model, session, options, assembly)
        completion: Completion | None = None
        for delta in target.stream(prompt, options):
            completion = delta.completion or completion
            yield delta
        if completion is None:
            raise ProviderError("the stream ended without a completion", subject=target.name, remedy="Ask again.")
        yield self._answered(question, session, prompt, completion)

    def _prepare(
        self,
        question: str,
        model: str | Model,
        session: str | None,
        options: CompletionOptions | None,
        assembly: dict[str, Any],
    ) -> tuple[Prompt, Model, CompletionOptions]:
        target = self.model(model)
        if session is not None:  # what cannot be stored is refused before the model is asked
            self.store.sessions.check(session, [Message("user", question)])
        budget = budget_for(assembly.pop("budget", None), target.window, limited=True)
        room = budget.reserve_output or budget.max_tokens
        options = options or CompletionOptions(max_tokens=room)
        if options.max_tokens > room:
            options = replace(options, max_tokens=room)
        return self.assemble(question, session=session, model=target, budget=budget, **assembly), target, options

    def _answered(self, question: str, session: str | None, prompt: Prompt, completion: Completion) -> Answer:
        return answered(self.store, question, session, prompt, completion)

    # Async twins: the work is CPU and database, so each runs in a thread.

    async def aingest(self, paths: str | Path | Iterable[str | Path], **options: Any) -> IngestReport:
        return await asyncio.to_thread(self.ingest, paths, **options)

    async def asearch(self, text: str, k: int = 10, **options: Any) -> list[Candidate]:
        return await asyncio.to_thread(self.search, text, k, **options)

    async def aassemble(self, question: str, **options: Any) -> Prompt:
        return await asyncio.to_thread(self.assemble, question, **options)

    async def areplay(self, fingerprint: str) -> Prompt:
        return await asyncio.to_thread(self.replay, fingerprint)

    async def aask(
        self,
        question: str,
        *,
        model: str | Model = "local",
        session: str | None = None,
        options: CompletionOptions | None = None,
        **assembly: Any,
    ) -> Answer:
        prompt, target, options = await asyncio.to_thread(self._prepare, question, model, session, options, assembly)
        completion = await target.acomplete(prompt, options)
        return await asyncio.to_thread(self._answered, question, session, prompt, completion)

    async def astream(
        self,
        question: str,
        *,
        model: str | Model = "local",
        session: str | None = None,
        options: CompletionOptions | None = None,
        **assembly: Any,
    ) -> AsyncIterator[CompletionDelta | Answer]:
        prompt, target, options = await asyncio.to_thread(self._prepare, question, model, session, options, assembly)
        completion: Completion | None = None
        async for delta in target.astream(prompt, options):
            completion = delta.completion or completion
            yield delta
        if completion is None:
            raise ProviderError("the stream ended without a completion", subject=target.name, remedy="Ask again.")
        yield await asyncio.to_thread(self._answered, question, session, prompt, completion)
