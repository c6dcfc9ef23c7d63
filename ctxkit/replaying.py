"""Recorded prompts: what a prompt was made of, kept by hash, and the same prompt again, byte for byte (law 6).

A prompt is recorded whole: its messages, and what it was made of (template, payload, candidates, tools), each a piece
by the hash of its content. Replaying reads the messages back, so it needs neither the documents, the model nor this
version of the assembler; the pieces prove that it is the prompt that the fingerprint names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ctxkit.assembly.entry import sendable, sendable_candidates
from ctxkit.assembly.identity import context_hash, described, fingerprint, request_hashes
from ctxkit.assembly.pieces import candidate_form, candidate_of, prompt_form, prompt_of
from ctxkit.documents import Candidate, Chunk, Query, content_hash
from ctxkit.errors import NotFoundError, StorageError
from ctxkit.messages import history_hash
from ctxkit.prompts import Prompt

if TYPE_CHECKING:
    from ctxkit.storage import RunInfo, Store
    from ctxkit.templates import Template

__all__ = ["Recorded", "Request", "changes_since", "read_prompt", "record_prompt"]

FORMAT = 1
"""Rises when `ctxkit.assembly.identity` hashes the parts of a prompt in another way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a prompt was asked for with.

    `template` and `payload` are the references that were given, "" where a value was; `history` is how many messages
    the session had; `stages` describes retriever, stages and window by class and parameters.
    """

    question: str
    session: str | None = None
    history: int = 0
    template: str = ""
    payload: str = ""
    model: str | None = None
    filters: Mapping[str, Any] = field(default_factory=dict)
    now: datetime | None = None
    stages: Sequence[Any] = ()

    @classmethod
    def of(
        cls, query: Query, history: int, template: object, payload: object, model: object, parts: Sequence[object]
    ) -> Request:
        """The request of a query, as it was given, answered by these parts of an engine."""
        return cls(
            question=query.text,
            session=query.session,
            history=history,
            template=template if isinstance(template, str) else "",
            payload=payload if isinstance(payload, str) else "",
            model=model if isinstance(model, str) else getattr(model, "name", None),
            filters=query.filters,
            now=query.now,
            stages=[described(part) for part in parts],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A recorded prompt, with all that it was made of."""

    info: RunInfo
    prompt: Prompt
    request: Request
    template: Mapping[str, Any]
    payload: Mapping[str, Any]
    candidates: tuple[Candidate, ...]
    document_hashes: Mapping[str, str]

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of `ContextEngine.assemble` that ask for this prompt again, as its references stand now."""
        from ctxkit.templates import Template

        asked = self.request
        return {
            "question": asked.question,
            "session": asked.session,
            "template": asked.template or Template.from_content(self.template),
            "payload": asked.payload or dict(self.payload),
            "budget": self.prompt.budget,
            "model": asked.model,
            "filters": asked.filters,
            "now": asked.now,
            "tools": self.prompt.tools,
        }


def record_prompt(
    store: Store,
    prompt: Prompt,
    request: Request,
    *,
    template: Template,
    payload: Mapping[str, Any],
    candidates: Sequence[Candidate],
) -> bool:
    """Store a prompt so that it can be replayed; whether it was not stored before. Linear in the prompt.

    Raises:
        StorageError: a text holds NUL, the payload a lone surrogate, or a candidate's metadata is not JSON.
    """
    pieces: dict[str, Any] = {}

    def piece(value: Any) -> str:
        digest = content_hash(value)
        pieces[digest] = value
        return digest

    # What is hashed is what could be sent: `assemble` replaces lone surrogates, which no database holds either.
    question, candidates = sendable(request.question), sendable_candidates(candidates)
    states = store.documents.states([candidate.chunk.document_id for candidate in candidates])
    content = {
        "format": FORMAT,
        **prompt_form(prompt, piece),
        "template": piece(template.content),
        "payload": piece(dict(payload)),
        "candidates": [candidate_form(candidate, piece) for candidate in candidates],
        "documents": {name: state.content_hash for name, state in states.items()},
        "request": {
            "question": question,
            "session": request.session,
            "history": request.history,
            "template": request.template,
            "payload": request.payload,
            "model": request.model,
            "filters": dict(request.filters),
            "now": request.now.isoformat() if request.now else None,
            "stages": list(request.stages),
        },
    }
    return store.runs.put(
        prompt.fingerprint,
        content,
        pieces,
        session=request.session,
        template=template.reference,
        question=question,
    )


def read_prompt(store: Store, digits: str) -> Recorded:
    """The recorded prompt of a fingerprint, or of its beginning (8 hex digits or more), byte for byte, and proved.

    Proved: each piece is what its hash says, the messages are those that were sent, and template, payload, question,
    tools, budget and context hash to the fingerprint.

    Raises:
        NotFoundError: no such prompt is recorded.
        StorageError: what is stored is not what was recorded.
    """
    info, content, pieces = store.runs.get(digits)
    try:
        recorded = _recorded(info, content, pieces)
        wrong = _unproved(recorded, content)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise _damaged(info, f"it cannot be read: {type(error).__name__} {error}") from error
    if wrong:
        raise _damaged(info, f"{wrong} is not what was recorded")
    return recorded


def changes_since(store: Store, recorded: Recorded) -> list[str]:
    """What is another now than when the prompt was made, a line each: documents, template, payload, dialogue."""
    return [*_changed_documents(store, recorded), *_changed_references(store, recorded)]


def _changed_documents(store: Store, recorded: Recorded) -> list[str]:
    lines = []
    texts: dict[str, str | None] = {}
    for candidate in recorded.candidates:
        chunk = candidate.chunk
        if chunk.document_id not in texts:
            try:
                texts[chunk.document_id] = store.documents.get(chunk.document_id).text
            except NotFoundError:
                texts[chunk.document_id] = None
                lines.append(f"document {_name(chunk)} is gone")
        text = texts[chunk.document_id]
        if text is not None and chunk.span.slice(text) != chunk.text:
            lines.append(f"document {_name(chunk)} has another text at {chunk.span.start}-{chunk.span.end}")
    return lines


def _changed_references(store: Store, recorded: Recorded) -> list[str]:
    from ctxkit.templates import TemplateRegistry

    asked, lines = recorded.request, []
    for kind, reference, hashed, look_up in (
        ("template", asked.template, content_hash(recorded.template), TemplateRegistry(store).version),
        ("payload", asked.payload, content_hash(recorded.payload), store.payloads.resolve),
    ):
        try:
            found: Any = look_up(reference) if reference else None
        except NotFoundError:
            lines.append(f"{kind} {reference} is not there")
        else:
            if found is not None and found.hash != hashed:
                lines.append(f"{kind} {reference} is version {found.version} now, with another content")
    if asked.session is not None:
        messages = store.sessions.messages(asked.session)
        if history_hash(messages[: asked.history]) != recorded.prompt.hashes["history"]:
            lines.append(f"session {asked.session} is not the dialogue that it was")
        elif len(messages) > asked.history:
            lines.append(f"session {asked.session} went on: messages {asked.history + 1:,} to {len(messages):,}")
    return lines


def _name(chunk: Chunk) -> str:
    return str(chunk.metadata.get("source") or chunk.document_id)


def _recorded(info: RunInfo, content: Mapping[str, Any], pieces: Mapping[str, Any]) -> Recorded:
    asked = content["request"]
    moment = datetime.fromisoformat(asked["now"]) if asked["now"] else None
    return Recorded(
        info=info,
        prompt=prompt_of(info.fingerprint, content, pieces),
        request=Request(**{**asked, "now": moment}),
        template=pieces[content["template"]],
        payload=pieces[content["payload"]],
        candidates=tuple(candidate_of(item, pieces) for item in content["candidates"]),
        document_hashes=content["documents"],
    )


def _unproved(recorded: Recorded, content: Mapping[str, Any]) -> str:
    """The first part that is not what was recorded; "" for a sound prompt."""
    prompt = recorded.prompt
    if content_hash(prompt.messages) != content["sent"]:
        return "what was sent"
    if content["format"] != FORMAT:  # how the parts are hashed may have been another way
        return ""
    if fingerprint(prompt.hashes) != prompt.fingerprint:
        return "the fingerprint"
    found = request_hashes(
        template=content_hash(recorded.template),
        payload=recorded.payload,
        history=(),
        question=recorded.request.question,
        tools=prompt.tools,
        budget=prompt.budget,
        counter=prompt.counter,
        window=None,
    )
    found["context"] = context_hash(recorded.candidates)
    # The dialogue is in its session, of which a prompt holds a part; a window is known by its hash alone.
    for name in sorted(set(found) - {"history", "window"}):
        if found[name] != prompt.hashes[name]:
            return name
    return ""


def _damaged(info: RunInfo, problem: str) -> StorageError:
    return StorageError(
        f"the recorded prompt is damaged: {problem}",
        subject=info.fingerprint,
        remedy="Restore a backup of the store; a ctxkit that wrote another form of it can read it too.",
    )
