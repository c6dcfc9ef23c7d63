"""A server on the loopback that speaks both providers' protocols, well and badly, for real clients."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any

Behaviour = Callable[["Handler", dict[str, Any]], None]
ANSWER = "Hello from the provider, wholly and in pieces: 你好 👍."


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        return

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append({"path": self.path, "headers": dict(self.headers), "body": body})
        script = self.server.script
        behaviour = script.pop(0) if len(script) > 1 else script[0]
        try:
            behaviour(self, body)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    @property
    def anthropic(self) -> bool:
        return self.path.endswith("/messages")

    def reply(
        self, status: int, body: bytes | dict[str, Any], content_type: str = "application/json", **headers: str
    ) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(data)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(data)

    def start_events(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True

    def event(self, data: dict[str, Any] | str, name: str | None = None) -> None:
        text = data if isinstance(data, str) else json.dumps(data)
        self.wfile.write((f"event: {name}\n" if name else "").encode() + f"data: {text}\n\n".encode())
        self.wfile.flush()


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.script: list[Behaviour] = []
        self.requests: list[dict[str, Any]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [request["body"] for request in self.requests]


@contextmanager
def running() -> Iterator[Server]:
    server = Server()
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


# Behaviours.


def error(status: int, message: str, *, kind: str = "invalid_request_error", **extra: Any) -> Behaviour:
    """An error in the provider's own form; `headers` as a dict."""
    headers = extra.pop("headers", {})

    def behave(handler: Handler, body: dict[str, Any]) -> None:
        inner = {"type": kind, "message": message, **extra}
        handler.reply(status, {"type": "error", "error": inner} if handler.anthropic else {"error": inner}, **headers)

    return behave


def raw(status: int, data: bytes, content_type: str = "application/json") -> Behaviour:
    return lambda handler, body: handler.reply(status, data, content_type)


class Held:
    """An answer that is held back until `let_go`; who waits for it all the same gets it after `seconds`."""

    def __init__(self, then: Behaviour, seconds: float = 15) -> None:
        self.asked, self.over = Event(), Event()
        self._then, self._seconds, self._gone = then, seconds, Event()

    def __call__(self, handler: Handler, body: dict[str, Any]) -> None:
        self.asked.set()
        self._gone.wait(self._seconds)
        self.over.set()
        self._then(handler, body)

    def let_go(self) -> None:
        self._gone.set()


def pieces(text: str, size: int = 5) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]


def answer(
    text: str = ANSWER,
    *,
    finish: str | None = None,
    calls: list[tuple[str, str, str]] | None = None,
    delay: float = 0.0,
    break_after: int | None = None,
) -> Behaviour:
    """A completion, streamed or whole as the request asks. `break_after` events the connection is cut."""

    def behave(handler: Handler, body: dict[str, Any]) -> None:
        problem = (_check_anthropic if handler.anthropic else _check_openai)(body)
        if problem:
            error(400, problem)(handler, body)
            return
        said = text
        for stop in body.get("stop") or body.get("stop_sequences") or []:
            said = said.split(stop)[0]
        limit = body.get("max_tokens") or body.get("max_completion_tokens") or 10_000
        cut = limit < 3
        said = said.split(" ")[0] if cut else said
        make = _anthropic_events if handler.anthropic else _openai_events
        reason = finish or ("calls" if calls else "length" if cut else "stop")
        if not body.get("stream"):
            whole = _anthropic_whole if handler.anthropic else _openai_whole
            handler.reply(200, whole(body["model"], said, calls or [], reason))
            return
        handler.start_events()
        for number, (name, data) in enumerate(make(body["model"], said, calls or [], reason)):
            if break_after is not None and number >= break_after:
                return
            time.sleep(delay)
            handler.event(data, name)

    return behave


def events(*items: str | dict[str, Any]) -> Behaviour:
    """Any events at all."""

    def behave(handler: Handler, body: dict[str, Any]) -> None:
        handler.start_events()
        for item in items:
            handler.event(item)

    return behave


USAGE = (11, 7)


def _check_openai(body: dict[str, Any]) -> str:
    for message in body["messages"]:
        if message["role"] not in ("system", "user", "assistant", "tool"):
            return f"bad role {message['role']}"
        for part in message["content"] if isinstance(message["content"], list) else []:
            if part["type"] == "image_url" and set(part["image_url"]) - {"url", "detail"}:
                return "bad image"
    return ""


def _check_anthropic(body: dict[str, Any]) -> str:
    """The Messages API's rules, as strictly as it keeps them."""
    last, open_calls = "assistant", set()
    for message in body["messages"]:
        if message["role"] == last:
            return "messages: roles must alternate between user and assistant"
        last = message["role"]
        blocks = message["content"]
        if isinstance(blocks, str):
            blocks = [{"type": "text", "text": blocks}]
        if not blocks:
            return "messages: content must not be empty"
        results = {block["tool_use_id"] for block in blocks if block["type"] == "tool_result"}
        if results != open_calls:
            return f"messages: tool_result blocks {results} do not answer tool_use {open_calls}"
        open_calls = {block["id"] for block in blocks if block["type"] == "tool_use"}
        if any(block["type"] == "text" and not block["text"].strip() for block in blocks):
            return "messages: text content blocks must contain non-whitespace text"
    if "max_tokens" not in body:
        return "max_tokens: field required"
    if "temperature" in body and "top_p" in body:
        return "temperature and top_p cannot both be specified"
    return ""


def _openai_whole(model: str, text: str, calls: list[tuple[str, str, str]], reason: str) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": text or None}
    if calls:
        message["tool_calls"] = [
            {"id": call, "type": "function", "function": {"name": name, "arguments": arguments}}
            for call, name, arguments in calls
        ]
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls" if reason == "calls" else reason}],
        "usage": _openai_usage(),
    }


def _openai_usage() -> dict[str, Any]:
    prompt, completion = USAGE
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": 4},
    }


def _openai_events(
    model: str, text: str, calls: list[tuple[str, str, str]], reason: str
) -> Iterator[tuple[None, dict[str, Any] | str]]:
    def chunk(delta: dict[str, Any], finish: str | None = None) -> tuple[None, dict[str, Any]]:
        choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
        base = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": model}
        return None, {**base, "choices": choices}

    yield chunk({"role": "assistant", "content": ""})
    for piece in pieces(text):
        yield chunk({"content": piece})
    for index, (call, name, arguments) in enumerate(calls):
        head = {"index": index, "id": call, "type": "function", "function": {"name": name, "arguments": ""}}
        yield chunk({"tool_calls": [head]})
        for piece in pieces(arguments):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield chunk({}, "tool_calls" if reason == "calls" else reason)
    last = chunk({})[1]
    yield None, {**last, "choices": [], "usage": _openai_usage()}
    yield None, "[DONE]"


_ANTHROPIC_REASONS = {"stop": "end_turn", "length": "max_tokens", "calls": "tool_use"}


def _anthropic_whole(model: str, text: str, calls: list[tuple[str, str, str]], reason: str) -> dict[str, Any]:
    blocks: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
    for call, name, arguments in calls:
        blocks.append({"type": "tool_use", "id": call, "name": name, "input": json.loads(arguments)})
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": blocks,
        "stop_reason": _ANTHROPIC_REASONS.get(reason, reason),
        "stop_sequence": None,
        "usage": {"input_tokens": USAGE[0] - 4, "output_tokens": USAGE[1], "cache_read_input_tokens": 4},
    }


def _anthropic_events(
    model: str, text: str, calls: list[tuple[str, str, str]], reason: str
) -> Iterator[tuple[str, dict[str, Any]]]:
    def event(kind: str, **data: Any) -> tuple[str, dict[str, Any]]:
        return kind, {"type": kind, **data}

    start = _anthropic_whole(model, "", [], reason)
    start |= {"stop_reason": None, "usage": {**start["usage"], "output_tokens": 1}}
    yield event("message_start", message=start)
    index = 0
    if text:
        yield event("content_block_start", index=0, content_block={"type": "text", "text": ""})
        yield event("ping")
        for piece in pieces(text):
            yield event("content_block_delta", index=0, delta={"type": "text_delta", "text": piece})
        yield event("content_block_stop", index=0)
        index = 1
    for number, (call, name, arguments) in enumerate(calls, index):
        block = {"type": "tool_use", "id": call, "name": name, "input": {}}
        yield event("content_block_start", index=number, content_block=block)
        for piece in pieces(arguments):
            delta = {"type": "input_json_delta", "partial_json": piece}
            yield event("content_block_delta", index=number, delta=delta)
        yield event("content_block_stop", index=number)
    stop = {"stop_reason": _ANTHROPIC_REASONS.get(reason, reason), "stop_sequence": None}
    yield event("message_delta", delta=stop, usage={"output_tokens": USAGE[1]})
    yield event("message_stop")
