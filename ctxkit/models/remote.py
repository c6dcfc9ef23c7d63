"""What the remote models share: the credentials, tries with jitter, one deadline, streams that end properly.

The SDKs' own retries are off; ours are bounded by number and by the request's timeout, and a stream is never begun
again once the reader has seen a piece of it.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator, Mapping
from functools import cached_property
from threading import Lock
from typing import Any
from weakref import finalize

from ctxkit.errors import AuthenticationError, ConfigError, CtxkitError
from ctxkit.models.json_text import json_text
from ctxkit.models.remote_errors import Transient, translate, unsupported_parameter
from ctxkit.models.remote_reading import END, Answer, AsyncEvents, Clock, Events, Price, StreamReader, read_whole
from ctxkit.prompts import Completion, CompletionDelta, CompletionOptions, Prompt
from ctxkit.protocols import ChatCounter
from ctxkit.settings import require
from ctxkit.tokens import scalar_text

__all__ = ["Price", "RemoteModel"]


class RemoteModel(ABC):
    """A model behind a provider's SDK; subclasses say how to ask and how to read.

    Args:
        model: the provider's name of it.
        api_key: else from the environment.
        base_url: of another server that speaks the protocol.
        window: tokens of prompt and answer together.
        counter: instead of the provider's own.
        attempts: how often a request is sent at most while the rate is refused, or the provider fails or is not there.
        price: to fill `Completion.cost`; there is no built-in table, prices change.
        client_options: further arguments for the SDK's client.
    """

    extra: str
    """The extra to install, and the module of the SDK."""
    key: str
    """The environment variable with the credentials."""
    clients: tuple[str, str]
    """The SDK's classes, sync and async."""
    optional: tuple[str, ...] = ()
    """Parameters of a request that some models refuse; one that is refused is left out from then on."""

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        window: int | None = None,
        counter: ChatCounter | None = None,
        attempts: int = 4,
        price: Price | None = None,
        client_options: Mapping[str, Any] | None = None,
    ) -> None:
        if not model:
            raise ConfigError("the model's name is empty", remedy="Name a model of the provider.")
        if attempts < 1:
            raise ConfigError(f"attempts is {attempts}", subject=model, remedy="A request is sent at least once.")
        if window is not None and window < 2:
            raise ConfigError(f"window is {window}", subject=model, remedy="A window has at least 2 tokens.")
        self.model = model
        self.attempts = attempts
        self.price = price
        self._api_key = api_key
        self._base_url = base_url
        self._window = window
        self._counter = counter
        self._client_options = dict(client_options or {})
        self._refused: set[str] = set()
        self._lock = Lock()

    @property
    def name(self) -> str:
        return self.model

    @property
    @abstractmethod
    def counter(self) -> ChatCounter: ...

    @property
    @abstractmethod
    def window(self) -> int: ...

    @abstractmethod
    def request(self, prompt: Prompt, options: CompletionOptions) -> dict[str, Any]:
        """The arguments of the SDK's call."""

    @abstractmethod
    def _create(self, client: Any) -> Any:
        """The SDK's method that is called with a request."""

    @abstractmethod
    def _read(self, response: Any, answer: Answer) -> None:
        """Put a whole response into the answer."""

    @abstractmethod
    def _read_event(self, event: Any, answer: Answer) -> str:
        """Put one event of a stream into the answer; returns its text."""

    def complete(self, prompt: Prompt, options: CompletionOptions | None = None) -> Completion:
        options = options or CompletionOptions()
        clock = Clock(options.timeout, self.model)
        response = self._retry(prompt, options, clock, self._client, stream=False)
        return self._whole(response, options, clock)

    async def acomplete(self, prompt: Prompt, options: CompletionOptions | None = None) -> Completion:
        options = options or CompletionOptions()
        clock = Clock(options.timeout, self.model)
        async with self._async_client() as client:
            response = await self._aretry(prompt, options, clock, client, stream=False)
        return self._whole(response, options, clock)

    def stream(self, prompt: Prompt, options: CompletionOptions | None = None) -> Iterator[CompletionDelta]:
        options = options or CompletionOptions()
        clock = Clock(options.timeout, self.model)
        reader = self._reader(options, clock)
        events, first = self._retry(prompt, options, clock, self._client, stream=True)
        try:
            event = first
            while event is not END:
                if text := reader.feed(event):
                    yield CompletionDelta(text)
                if reader.done:
                    break
                try:
                    event = next(events, END)
                except Exception as error:
                    raise self._failed(error, prompt) from error
        finally:
            events.close()
        yield from reader.end()

    async def astream(self, prompt: Prompt, options: CompletionOptions | None = None) -> AsyncIterator[CompletionDelta]:
        options = options or CompletionOptions()
        clock = Clock(options.timeout, self.model)
        reader = self._reader(options, clock)
        async with self._async_client() as client:
            events, first = await self._aretry(prompt, options, clock, client, stream=True)
            try:
                event = first
                while event is not END:
                    if text := reader.feed(event):
                        yield CompletionDelta(text)
                    if reader.done:
                        break
                    try:
                        event = await anext(events, END)
                    except Exception as error:
                        raise self._failed(error, prompt) from error
            finally:
                await events.aclose()
        for delta in reader.end():
            yield delta

    # Sending.

    def _retry(self, prompt: Prompt, options: CompletionOptions, clock: Clock, client: Any, *, stream: bool) -> Any:
        tenacity: Any = require("tenacity", extra=self.extra)
        request = self._sendable(prompt, options)
        try:
            for attempt in tenacity.Retrying(**self._policy(tenacity, clock)):
                with attempt:
                    return self._send(client, request, prompt, clock, stream=stream)
        except Transient as transient:
            raise transient.error from transient.__cause__
        raise AssertionError("unreachable")

    async def _aretry(
        self, prompt: Prompt, options: CompletionOptions, clock: Clock, client: Any, *, stream: bool
    ) -> Any:
        tenacity: Any = require("tenacity", extra=self.extra)
        request = self._sendable(prompt, options)
        try:
            async for attempt in tenacity.AsyncRetrying(**self._policy(tenacity, clock)):
                with attempt:
                    return await self._asend(client, request, prompt, clock, stream=stream)
        except Transient as transient:
            raise transient.error from transient.__cause__
        raise AssertionError("unreachable")

    def _sendable(self, prompt: Prompt, options: CompletionOptions) -> dict[str, Any]:
        """The request as JSON of scalar values. Raises `ConfigError` where it is not JSON."""
        request = self.request(prompt, options)
        json_text(request, subject=self.model)
        return {key: _scalar(value) for key, value in request.items()}

    def _send(self, client: Any, request: dict[str, Any], prompt: Prompt, clock: Clock, *, stream: bool) -> Any:
        while True:
            try:
                sent = self._adapted(request, stream=stream)
                response = self._create(client)(**sent, timeout=clock.left())
                if not stream:
                    return response
                events = iter(response)
                return Events(events, response), next(events, END)
            except Warning:  # where the user made warnings errors, they are his
                raise
            except Exception as error:
                if not self._adapt(error, request):
                    raise self._failed(error, prompt, retry=True) from error

    async def _asend(self, client: Any, request: dict[str, Any], prompt: Prompt, clock: Clock, *, stream: bool) -> Any:
        while True:
            try:
                sent = self._adapted(request, stream=stream)
                response = await self._create(client)(**sent, timeout=clock.left())
                if not stream:
                    return response
                events = aiter(response)
                return AsyncEvents(events, response), await anext(events, END)
            except Warning:  # where the user made warnings errors, they are his
                raise
            except Exception as error:
                if not self._adapt(error, request):
                    raise self._failed(error, prompt, retry=True) from error

    def _adapted(self, request: dict[str, Any], *, stream: bool) -> dict[str, Any]:
        """The request without what this model has refused before."""
        return {key: value for key, value in request.items() if key not in self._refused}

    def _adapt(self, error: BaseException, request: dict[str, Any]) -> bool:
        """Leave out a parameter that the model does not know; whether there is one to leave out."""
        name = unsupported_parameter(error, self.optional)
        if name is None or name in self._refused:
            return False
        self._refused.add(name)
        return True

    def _failed(self, error: BaseException, prompt: Prompt, *, retry: bool = False) -> CtxkitError | Transient:
        ours = translate(error, subject=self.model, window=self.window, tokens=prompt.token_count, key=self.key)
        return ours if retry or isinstance(ours, CtxkitError) else ours.error

    def _policy(self, tenacity: Any, clock: Clock) -> dict[str, Any]:
        backoff = tenacity.wait_random_exponential(multiplier=0.5, max=20)

        def wait(state: Any) -> float:
            error = state.outcome.exception()
            asked = error.retry_after if isinstance(error, Transient) else None
            # A little more than the provider asks for, so that many clients do not come back at one moment.
            return float(backoff(state)) if asked is None else asked + 0.1 * float(backoff(state))

        def stop(state: Any) -> bool:
            return bool(state.attempt_number >= self.attempts or state.upcoming_sleep >= clock.remaining())

        return {
            "retry": tenacity.retry_if_exception_type(Transient),
            "wait": wait,
            "stop": stop,
            "reraise": True,
        }

    # Clients.

    @cached_property
    def _client(self) -> Any:
        with self._lock:
            client = self._new_client(self.clients[0])
        finalize(self, client.close)  # its connections end with the model, not when the collector finds their sockets
        return client

    def _async_client(self) -> Any:
        """A client for one request: an async one belongs to the event loop that it was first used in."""
        return self._new_client(self.clients[1])

    def _new_client(self, kind: str) -> Any:
        sdk: Any = require(self.extra, extra=self.extra, subject=self.model)
        key = self._api_key or os.environ.get(self.key)
        if not key:
            if self._base_url is None:
                raise AuthenticationError(
                    "there is no API key", subject=self.model, remedy=f"Set {self.key}, or give api_key."
                )
            key = "none"  # a server of one's own may want no key, the SDK does
        options = {"max_retries": 0, **self._client_options}
        if self._base_url is not None:
            options["base_url"] = self._base_url
        return getattr(sdk, kind)(api_key=key, **options)

    # Reading.

    def _whole(self, response: Any, options: CompletionOptions, clock: Clock) -> Completion:
        return read_whole(response, self._read, model=self.model, options=options, price=self.price, clock=clock)

    def _reader(self, options: CompletionOptions, clock: Clock) -> StreamReader:
        return StreamReader(self._read_event, model=self.model, options=options, price=self.price, clock=clock)


def _scalar(value: Any) -> Any:
    """A request's values with every text as UTF-8 can carry it, which is how it was counted."""
    if isinstance(value, str):
        return scalar_text(value)
    if isinstance(value, Mapping):
        return {_scalar(key): _scalar(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_scalar(item) for item in value]
    return value
