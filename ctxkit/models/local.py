"""A causal language model on this machine, through transformers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, cast

from ctxkit.checking import check_able, check_whole
from ctxkit.compression.entropy_scores import TokenScores
from ctxkit.errors import ConfigError, ContextOverflowError, CtxkitError, ModelError
from ctxkit.kvcache.chunk_reuse import ChunkCache
from ctxkit.kvcache.identity import PREFILL_GRID
from ctxkit.kvcache.reuse import PrefixCache
from ctxkit.models.catalogue import ModelSource, resolve
from ctxkit.models.chunk_layout import lay_out
from ctxkit.models.decoding import FreshCache, KeyValueCache, decode_steps
from ctxkit.models.evicting import PromptEviction
from ctxkit.models.loading import load_weights
from ctxkit.models.local_answer import Answer, Clock
from ctxkit.models.local_config import LocalConfig, read_config, read_window
from ctxkit.models.local_scores import score_texts
from ctxkit.models.memory_guard import MemoryGuard
from ctxkit.models.resolving import get_chat_counter
from ctxkit.models.template_counting import ChatTemplateCounter
from ctxkit.models.text_stream import TextStream
from ctxkit.models.tool_calls import CALL_MARKER
from ctxkit.models.tuning import read_something, set_threads
from ctxkit.prompts import Completion, CompletionDelta, CompletionOptions, Prompt
from ctxkit.settings import require
from ctxkit.trace import StageRecord

if TYPE_CHECKING:
    from ctxkit.kvcache.eviction.protocol import Evicted, Eviction
    from ctxkit.kvcache.store import BlockStore

__all__ = ["LocalModel"]


class LocalModel:
    """Any causal language model of transformers; `local` is SmolLM2-135M-Instruct.

    The prompt is encoded segment by segment: the ids that are counted are the ids that are fed. Nothing is loaded
    before the first answer; threads and models of one folder share the weights.

    Args:
        model: `local`, a name of the catalogue or of the local hub cache, a model folder, or a GGUF file.
        device: a device of torch, or `auto`.
        dtype: a dtype of torch or its name, or `auto`: on a CPU what is measured to be faster, once for each machine;
            elsewhere that of the weights. `$CTXKIT_DTYPE` is another default.
        threads: of the process, or `auto`: what is measured to be fastest when the weights are loaded.
            `$CTXKIT_THREADS` is another default.
        window: tokens of prompt and answer together, instead of the model's own.
        counter: instead of the one that the model's tokenizer and template give.
        cache: gives and takes keys and values; the seam for a cache that outlives a request.
        kv: a folder or a `BlockStore`: prefixes of prompts are kept there, and not computed again. Instead of `cache`.
        kv_codec: how they are packed; `none` changes no bit of an answer.
        kv_chunks: use the chunks that were read ahead into `kv`, wherever they land in a prompt; approximate, so off.
        tenant: whose prefixes; default `$CTXKIT_TENANT`.
        eviction: after a prompt is read, keep only these of its tokens while answering; off by default. A store gets
            all of them before.

    Attributes:
        evicted: what the last eviction did.

    Errors: `ModelNotFoundError` (not installed), `ContextOverflowError` (prompt and answer over the window),
    `MemoryBudgetError` (by the plan, before anything is computed, or with the cause when memory ran out),
    `ModelTimeoutError`, `ModelError`, `MissingExtraError`.

    Example:
        model = LocalModel("local")
        model.complete(prompt, CompletionOptions(max_tokens=64)).text
    """

    def __init__(
        self,
        model: str | Path = "local",
        *,
        device: str = "auto",
        dtype: Any = "auto",
        threads: int | str = "auto",
        window: int | None = None,
        counter: ChatTemplateCounter | None = None,
        cache: KeyValueCache | None = None,
        kv: BlockStore | str | Path | None = None,
        kv_codec: str = "none",
        kv_chunks: bool = False,
        tenant: str | None = None,
        eviction: Eviction | None = None,
    ) -> None:
        if eviction is not None:
            check_able(eviction, "kept", "eviction", remedy="Give an Eviction(method=…, keep=…).")
        if kv_chunks and (kv is None or eviction is not None):
            raise ConfigError(
                "kv_chunks is given " + ("without kv" if kv is None else "beside an eviction"),
                subject=str(model),
                remedy="Give kv=FOLDER, where the chunks are, and no eviction; or leave kv_chunks out.",
            )
        if cache is not None and kv is not None:
            raise ConfigError("cache and kv are both given", subject=str(model), remedy="Give one of them.")
        if window is not None:
            check_whole(window, "window", minimum=2, remedy="A window is a whole number of at least 2 tokens.")
        if kv is None and kv_codec != "none":
            raise ConfigError(
                "kv_codec is given without kv", subject=str(model), remedy="Give kv=FOLDER, where they are kept."
            )
        if cache is not None:
            check_able(cache, "take", "cache", remedy="Give an object with take() and give(), such as a PrefixCache.")
        require("tokenizers", extra="local", subject=str(model))
        self._source: ModelSource = resolve(model)
        self._device = device
        self._dtype = dtype
        self._threads = threads
        self._window = window
        self._given_counter = counter
        self.chunks: ChunkCache | None = None
        if kv is not None:
            cache = PrefixCache(kv, codec=kv_codec, tenant=tenant)
            self.chunks = ChunkCache(cache.store, tenant=tenant) if kv_chunks else None
        self.cache: KeyValueCache = cache or FreshCache()
        self.eviction = eviction
        self.evicted: Evicted | None = None

    @property
    def name(self) -> str:
        return self._source.name

    @cached_property
    def window(self) -> int:
        return self._window or read_window(self._source)

    @cached_property
    def counter(self) -> ChatTemplateCounter:
        if self._given_counter is not None:
            return self._given_counter
        return cast(ChatTemplateCounter, get_chat_counter(f"local:{self._source.path}"))

    @cached_property
    def _config(self) -> LocalConfig:
        return read_config(self._source.folder())

    @cached_property
    def stop_ids(self) -> frozenset[int]:
        """The ids that end an answer: of the template, the tokenizer and the model's configuration."""
        return self.counter.stop_ids | self._config.stop_ids

    @cached_property
    def weights(self) -> Any:
        """The model of transformers, loaded at the first use."""
        weights = load_weights(self._source.folder(), device=self._device, dtype=self._dtype)
        if weights.device.type == "cpu":
            set_threads(self._threads, lambda: read_something(weights))
        return weights

    @cached_property
    def _guard(self) -> MemoryGuard:
        return MemoryGuard(self.weights, self.name)

    def close(self) -> None:
        """Wait until what the cache was given is stored; the model may be used again."""
        if isinstance(self.cache, PrefixCache):
            self.cache.close()

    def encode(self, prompt: Prompt) -> list[int]:
        """The ids that the model is fed."""
        return self.counter.encode_prompt(prompt.turns, prompt.tools)

    def complete(self, prompt: Prompt, options: CompletionOptions | None = None) -> Completion:
        completion = None
        for delta in self.stream(prompt, options):
            completion = delta.completion
        assert completion is not None
        return completion

    def stream(self, prompt: Prompt, options: CompletionOptions | None = None) -> Iterator[CompletionDelta]:
        """The answer as it is decoded: whole characters, and never a piece of a stop text."""
        return self._stream(prompt, options or CompletionOptions(), Event())

    async def astream(self, prompt: Prompt, options: CompletionOptions | None = None) -> AsyncIterator[CompletionDelta]:
        """`stream`, each step in a thread; when it is cancelled, decoding stops before the next step."""
        cancelled = Event()
        steps = self._stream(prompt, options or CompletionOptions(), cancelled)
        try:
            while (delta := await asyncio.to_thread(next, steps, None)) is not None:
                yield delta
        finally:
            cancelled.set()

    async def acomplete(self, prompt: Prompt, options: CompletionOptions | None = None) -> Completion:
        completion = None
        async for delta in self.astream(prompt, options):
            completion = delta.completion
        assert completion is not None
        return completion

    def score_tokens(
        self,
        texts: Sequence[str],
        *,
        before: str | Sequence[int] = "",
        after: str = "",
        entropy: bool = True,
        cache: KeyValueCache | None = None,
    ) -> Iterator[TokenScores]:
        """How surprising each token of each text is, and how the attention spreads from it: one forward pass a text.

        Each text is read alone after `before`, which is read once; one longer than 2,048 tokens in overlapping windows.

        Args:
            before: a question, so that all is conditioned on it; or ids, such as a prompt's prefix.
            after: read after each text, to see where in it its attention goes.
            entropy: look at the attention from every token of the text, which makes the pass some 40 % longer.
            cache: takes and gives keys and values, as for an answer: a prompt that begins with the ids of `before` and
                of the text finds both computed. Of a text in windows it is given each window.

        Errors: `ModelNotFoundError`, `ModelError`, `MissingExtraError`.

        Example:
            (scores,) = LocalModel("local").score_tokens(["The key is rotated."], before="How often is it rotated?\n\n")
        """
        weights = self.weights
        try:
            yield from score_texts(
                weights,
                self.counter.tokenizer,
                texts,
                before=before,
                after=after,
                entropy=entropy,
                window=self.window,
                cache=cache,
            )
        except CtxkitError:
            raise
        except Exception as error:
            raise ModelError(
                f"the model failed ({type(error).__name__}: {error})",
                subject=self.name,
                remedy="If memory is short, give shorter texts or choose a smaller model.",
            ) from error

    def _stream(self, prompt: Prompt, options: CompletionOptions, cancelled: Event) -> Iterator[CompletionDelta]:
        clock = Clock(options.timeout)
        ids = self.encode(prompt)
        self._check_room(ids, options)
        before = time.perf_counter()
        loading = "weights" not in self.__dict__
        weights = self.weights
        clock.load = time.perf_counter() - before if loading else 0.0
        reading = self._guard.check(len(ids) + options.max_tokens)
        clock.restart()

        def check() -> None:
            if cancelled.is_set():
                raise ModelError("the request was cancelled", subject=self.name, remedy="Ask again.")
            clock.check(self.name)

        stream = TextStream(
            self.counter.tokenizer.decode, stops=options.stop, marker=CALL_MARKER if prompt.tools else ""
        )
        answer = Answer(self.name, len(ids))
        try:
            before = time.perf_counter()
            cache, held, answer.reused = self._take(weights, prompt, ids)
            clock.take = time.perf_counter() - before
            if reading.step != PREFILL_GRID and isinstance(self.cache, PrefixCache):
                self.cache.mark_derived(cache)
            evicting = PromptEviction(self.eviction, weights, ids, self.cache) if self.eviction else None
            steps = decode_steps(
                weights,
                ids,
                cache=cache,
                reused=held,
                step=reading.step,
                max_tokens=options.max_tokens,
                stop_ids=self.stop_ids,
                temperature=options.temperature,
                top_p=options.top_p,
                seed=options.seed,
                check=check,
                eviction=evicting,
            )
            if evicting is not None:
                del cache  # so that what is evicted is freed
            for step in steps:
                clock.step(step.seconds)
                if evicting is not None:
                    self.evicted = evicting.done
                answer.tokens.append(step.token)
                if step.token in self.stop_ids:
                    answer.finish_reason = "stop"
                    break
                if text := answer.add(stream.push(step.token)):
                    yield CompletionDelta(text)
                if stream.stopped:
                    answer.finish_reason = "stop"
                    break
            if evicting is None:
                # The last id was chosen and never fed, so the cache does not hold it.
                self.cache.give(weights, [*ids, *answer.tokens[:-1]], cache)
        except CtxkitError:
            raise
        except Exception as error:
            phase = "decode" if answer.tokens else "prefill"
            if short := self._guard.explain(error, reading, phase=phase, caches=self._kept_bytes()):
                raise short from error
            raise ModelError(
                f"the model failed ({type(error).__name__}: {error})",
                subject=self.name,
                remedy="If memory is short, shorten the prompt or choose a smaller model.",
            ) from error
        if text := answer.add(stream.finish()):
            yield CompletionDelta(text)
        if text := answer.close(stream.marked):
            yield CompletionDelta(text)
        yield CompletionDelta(completion=answer.completion(clock.timings()))

    def _take(self, weights: Any, prompt: Prompt, ids: Sequence[int]) -> tuple[Any, int, int]:
        """A cache, how many ids it holds, and how many of them were not computed for this request."""
        if self.chunks is not None:
            started = time.perf_counter()
            layout = lay_out(self.counter, prompt)
            cache, held = self.chunks.take(weights, ids, layout.prefix, layout.chunks)
            use = self.chunks.last
            record = StageRecord("chunk reuse", time.perf_counter() - started, use.chunks, use.found)
            record.notes |= {**asdict(use), "tokens": use.describe(), "reason": use.reason or None}
            prompt.trace.records.append(record)
            if cache is not None:
                return cache, held, use.reused
        cache, held = self.cache.take(weights, ids)
        return cache, held, held

    def _kept_bytes(self) -> int:
        """Of stored keys and values in memory."""
        return self.cache.store.stats().memory_bytes if isinstance(self.cache, PrefixCache) else 0

    def _check_room(self, ids: list[int], options: CompletionOptions) -> None:
        if len(ids) + options.max_tokens > self.window:
            raise ContextOverflowError(
                parts={"prompt": len(ids), "answer": options.max_tokens}, available=self.window, subject=self.name
            )
