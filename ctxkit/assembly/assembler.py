"""`assemble`: everything an application could tell a model, as one prompt that fits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ctxkit.assembly import entry
from ctxkit.assembly.allotment import context_room, history_room, minima_beyond, steady
from ctxkit.assembly.context import Pool
from ctxkit.assembly.dialogue import Dialogue, check_turns
from ctxkit.assembly.identity import context_hash, fingerprint, request_hashes
from ctxkit.assembly.layout import Draft, Laid, Layout, stable_tokens
from ctxkit.assembly.packing import Packed, pack
from ctxkit.documents import Candidate, Query
from ctxkit.errors import BudgetError, ConfigError
from ctxkit.messages import Message
from ctxkit.prompts import Budget, Prompt, Segment
from ctxkit.protocols import ChatCounter, Window, counted_exactly
from ctxkit.tools import checked_tools
from ctxkit.trace import StageRecord, Trace

if TYPE_CHECKING:
    from ctxkit.templates import Template

__all__ = ["assemble"]

HISTORY_GRID = 32
"""History is allotted in steps of this part of the budget, so that its cut does not move with every question."""

REGROWTH_GRID = 8
"""What context leaves over goes to history in coarser steps."""

FENCES = 8
"""One part in this many of the context's room is kept for the fences around documents when stages are told the room."""


def assemble(
    query: Query,
    *,
    template: Template,
    payload: Mapping[str, Any],
    history: Sequence[Message],
    candidates: Sequence[Candidate] | Callable[[Query], Sequence[Candidate]],
    budget: Budget,
    counter: ChatCounter,
    window: Window,
    tools: Sequence[Mapping[str, Any]] = (),
    trace: Trace | None = None,
) -> Prompt:
    """One prompt that fits its budget, with the source of every token (laws 2, 3, 6 and 7).

    The mandatory parts (the template's text, the payload, tools, the question) are counted first; then the history is
    fitted; then retrieval is asked, told its room; then the best candidates that fit are taken; then the whole is
    counted as the target model counts it, and the least valuable items leave until it fits. Every item that is left
    out is in the trace with its reason. The same arguments give the same prompt, byte for byte. Of every text, each
    lone surrogate becomes U+FFFD, so that what is counted is what is sent; in a payload it is an error.

    Args:
        query: the question; `room` is set before candidates are asked for.
        template: its slots `context` and `question` and its place for the history are filled here.
        history: the dialogue before the question. A last message that is the question itself is not repeated.
        candidates: in the order they shall stand in the prompt; the one of the highest score is taken first. Or what
            finds them, called once with the query and its room.
        budget: limits for the sections `history` and `context`; a `max` of another section is checked.
        counter: of the target model.
        window: chooses what of the history is kept.
        trace: gets a record for each step; a new one by default.

    Complexity: O(n log n) in the candidates; each text that is used is counted once.

    Raises:
        BudgetError: the mandatory parts do not fit; `parts` has the tokens of each by section.
        ConfigError: the question is blank, a tool is malformed, or the budget limits a section that there is not.
        TemplateError: the payload does not fill the template, or its messages are in an order that providers refuse.
        HistoryError: the window gives messages that are no valid dialogue.

    Example:
        >>> from ctxkit.history import TailWindow
        >>> from ctxkit.models import get_chat_counter
        >>> from ctxkit.templates import DEFAULT_TEMPLATE
        >>> prompt = assemble(Query("Why?"), template=DEFAULT_TEMPLATE, payload={}, history=[], candidates=[],
        ...                   budget=Budget(1_000, reserve_output=200), counter=get_chat_counter("openai:gpt-4o"),
        ...                   window=TailWindow())
        >>> prompt.token_count <= 800
        True
    """
    if not query.text.strip():
        raise ConfigError("the question is empty", remedy="Ask something.")
    entry.check_sections(budget, template)
    tools = entry.sendable_tools(checked_tools(tools))
    query, history = replace(query, text=entry.sendable(query.text)), entry.sendable_history(history)
    work = _Assembly(query, template, payload, history, budget, counter, window, tools, trace or Trace())
    work.count_mandatory()
    work.fit_history(work.layout.has_context and (callable(candidates) or len(candidates) > 0))
    work.take_candidates(candidates)
    work.pack_context()
    work.regrow_history()
    work.verify()
    check_turns(work.laid.turns)
    return work.prompt()


class _Assembly:
    """The state of one assembly; each method is one step."""

    def __init__(
        self,
        query: Query,
        template: Template,
        payload: Mapping[str, Any],
        history: Sequence[Message],
        budget: Budget,
        counter: ChatCounter,
        window: Window,
        tools: Sequence[Mapping[str, Any]],
        trace: Trace,
    ) -> None:
        self.query = query
        self.budget = budget
        self.counter = counter
        self.tools = tuple(tools)
        self.trace = trace
        self._counts: dict[str, int] = {}
        with trace.stage("template") as record:
            rendered = template.render(payload)
            record.items_in = record.items_out = len(rendered)
            record.notes["template"] = template.reference
        self.hashes = request_hashes(
            template=template.hash,
            payload=payload,
            history=history,
            question=query.text,
            tools=self.tools,
            budget=budget,
            counter=counter.name,
            window=window,
        )
        self.dialogue = Dialogue(history, query.text, window, counter)
        self.layout = Layout(
            rendered,
            template=template.reference,
            question=query.text,
            question_id=self.dialogue.asked.id if self.dialogue.asked else None,
            in_dialogue=query.session is not None or bool(history),
        )
        self.pool = Pool((), self.count)
        self.packed = Packed()
        self.evicted: dict[int, str] = {}
        self.laid = Laid()
        self.total = self.room = self.packing_room = 0

    def count(self, text: str) -> int:
        known = self._counts.get(text)
        if known is None:
            known = self._counts[text] = self.counter.count(text)
        return known

    # Room before content.

    def count_mandatory(self) -> None:
        """What must be in the prompt; the rest of the budget is the room. Raises `BudgetError`."""
        with self.trace.stage("mandatory") as record:
            self.laid = self.layout.lay((), ())
            self.total = self.counter.count_prompt(self.laid.turns, self.tools)
            record.items_in = record.items_out = len(self.laid.drafts)
            record.tokens_in = record.tokens_out = self.total
            parts = self._parts()
            record.notes["parts"] = parts
            self.room = self.budget.available - self.total
            if self.room < 0:
                raise BudgetError(parts=parts, available=self.budget.available, subject=self.query.text[:60])
            for name, tokens in parts.items():
                cap = self.budget.section(name).max
                if cap is not None and tokens > cap and name not in ("history", "context"):
                    raise BudgetError(parts={name: tokens}, available=cap, subject=f"section {name}")

    def _parts(self) -> dict[str, int]:
        """The tokens of the mandatory parts by section; they add up to the total."""
        parts: dict[str, int] = defaultdict(int)
        for draft in self.laid.drafts:
            parts[draft.section] += self.count(draft.text)
        if self.tools:
            parts["tools"] += self.total - self.counter.count_prompt(self.laid.turns)
        rest = self.total - sum(parts.values())
        if rest >= 0:
            parts["chat format"] = rest
        else:  # joined texts can be fewer tokens than their pieces
            parts[max(parts, key=lambda name: parts[name])] += rest
        return dict(parts)

    def fit_history(self, has_context: bool) -> None:
        """What of the dialogue is kept before anything is known of the context."""
        dialogue = self.dialogue
        with self.trace.stage("history", items_in=len(dialogue.messages), tokens_in=dialogue.need) as record:
            limit = history_room(self.budget, self.room, has_context=has_context)
            dialogue.fit(steady(limit, dialogue.need, self.budget, parts=HISTORY_GRID))
            self._note_history(record)
            if minima := minima_beyond(self.budget, self.room, has_context=has_context):
                record.notes["minima beyond the room"] = minima
            if dialogue.asked is not None:
                record.notes["question"] = "the newest message of the history is the question; it stands there once"

    def _note_history(self, record: StageRecord) -> None:
        self.dialogue.note(record)

    def take_candidates(self, candidates: Sequence[Candidate] | Callable[[Query], Sequence[Candidate]]) -> None:
        """Ask for the candidates, told their room; find what they are worth and which of them cannot be sent."""
        room = self._context_room() if self.layout.has_context else 0
        if callable(candidates):
            asked = replace(self.query, room=room - room // FENCES)
            found = entry.sendable_candidates(candidates(asked)) if self.layout.has_context else []
        else:
            found = entry.sendable_candidates(candidates)
        with self.trace.stage("candidates", items_in=len(found)) as record:
            record.notes["room"] = room
            self.hashes["context"] = context_hash(found)
            if not self.layout.has_context:
                for candidate in found:
                    self._drop(record, candidate, candidate.chunk.token_count, "the template has no place for context")
                found = []
            self.pool = Pool(found, self.count)
            for index, reason in self.pool.useless.items():
                self._drop(record, found[index], found[index].chunk.token_count, reason)
            record.items_out = len(found) - len(self.pool.useless)

    def _context_room(self) -> int:
        return context_room(self.budget, self.room, self.dialogue.tokens)

    @staticmethod
    def _drop(record: StageRecord, candidate: Candidate, tokens: int, reason: str) -> None:
        sources = candidate.sources or replace(candidate, kept=None).sources
        record.drop("context", candidate.chunk.id, tokens, reason, sources)

    # Packing.

    def pack_context(self) -> None:
        """Choose candidates, the best first."""
        pool = self.pool
        usable = [index for index in range(len(pool.candidates)) if index not in pool.useless]
        with self.trace.stage("packing", items_in=len(usable)) as record:
            room = self.packing_room = self._context_room()
            self.packed = pack(pool.values, pool.hints, room, weigh=pool.weigh, items=usable, entangled=pool.entangled)
            record.items_out, record.tokens_out = len(self.packed.taken), self.packed.used
            record.notes["room"] = room

    def regrow_history(self) -> None:
        """Give history what the context has left over; all of it, as finely, where nothing was found."""
        dialogue = self.dialogue
        if dialogue.tokens >= dialogue.need:
            return
        cap = min(self.budget.section("history").cap(self.room), self.room - self.packed.used)
        parts = REGROWTH_GRID if self.pool.candidates else HISTORY_GRID
        limit = steady(cap, dialogue.need, self.budget, parts=parts)
        if limit > dialogue.limit:
            with self.trace.stage("history, again", items_in=len(dialogue.messages), tokens_in=dialogue.need) as record:
                dialogue.fit(limit)
                self._note_history(record)

    # Proof.

    def verify(self) -> None:
        """Count the whole and its sections; take the least valuable out until all fits, or put in what still fits."""
        with self.trace.stage("verification") as record:
            record.items_in = len(self.packed.taken) + len(self.dialogue.chosen)
            self._measure()
            record.tokens_in = self.total
            rounds, step = 1, 0
            while (excess := self._excess())[1] > 0:
                step = max(excess[1], 2 * step)
                self._evict(excess[0], step)
                self._measure()
                rounds += 1
            if rounds == 1:
                rounds += self._top_up()
            record.items_out = len(self.packed.taken) + len(self.dialogue.chosen)
            record.tokens_out = self.total
            record.notes["counts"] = rounds
            if self.laid.left_out:
                record.notes["messages of the template that are left out"] = self.laid.left_out
            self._report(record)

    def _measure(self) -> None:
        self.laid = self.layout.lay(self.dialogue.named(), self.pool.blocks(self.packed.taken))
        self.total = self.counter.count_prompt(self.laid.turns, self.tools)

    def _excess(self) -> tuple[str, int]:
        """What is over its limit, a section or the whole prompt, and by how many tokens; 0 where all limits hold."""
        for name in ("context", "history"):
            over = self._section_tokens(name) - self.budget.section(name).cap(self.room)
            if over > 0:
                return name, over
        return "whole prompt", self.total - self.budget.available

    def _section_tokens(self, name: str) -> int:
        """The tokens of a section's segments."""
        return sum(self._draft_tokens(draft) for draft in self.laid.drafts if draft.section == name)

    def _evict(self, what: str, excess: int) -> None:
        """Take out at least one item, and `excess` tokens by what is known of their costs."""
        taken, values = self.packed.taken, self.pool.values
        history_first = self.budget.section("history").priority < self.budget.section("context").priority
        if what == "history" or (what != "context" and self.dialogue.chosen and (history_first or not taken)):
            self.dialogue.shrink(excess)
            return
        large = [index for index, cost in taken.items() if cost >= excess]
        if large:
            leaving = [min(large, key=lambda index: (values[index], -index))]
        else:
            leaving, saved = [], 0
            for index in sorted(taken, key=lambda index: (values[index], -index)):
                leaving.append(index)
                saved += taken[index]
                if saved >= excess:
                    break
        for index in leaving:
            self.packed.known[index] = taken.pop(index)
            limit = "its cap" if what == "context" else "the budget"
            self.evicted[index] = f"the {what} was {excess:,} tokens over {limit}"

    def _top_up(self) -> int:
        """Joints and shared fences can make a prompt smaller than its parts: use what that leaves. Counts made."""
        for attempt in range(3):
            slack = min(
                self.budget.available - self.total,
                self.budget.section("context").cap(self.room) - self._section_tokens("context"),
            )
            added: dict[int, int] = {}
            if slack * 64 >= self.room:
                values, known = self.pool.values, self.packed.known
                for index in sorted(known, key=lambda index: (-values[index], index)):
                    if index not in self.pool.entangled and known[index] <= slack:
                        added[index] = known[index]
                        slack -= known[index]
            if not added:
                return attempt
            before = self.laid, self.total
            self.packed.taken |= added
            self._measure()
            if self._excess()[1] > 0:
                for index in added:
                    del self.packed.taken[index]
                self.laid, self.total = before
                return attempt + 1
            for index in added:
                del self.packed.known[index]
        return attempt + 1

    def _report(self, record: StageRecord) -> None:
        """Everything that is not in the prompt, with the reason."""
        pool = self.pool
        repeats = set(self.packed.nothing)
        for index, candidate in enumerate(pool.candidates):
            if index in self.packed.taken or index in pool.useless:
                continue
            tokens = self.packed.known.get(index, pool.hints[index])
            if index in repeats:
                reason = "its text is in the prompt already"
            else:
                beside = "" if tokens > self.packing_room else " beside better ones"
                room = f"the room of {self.packing_room:,} tokens"
                reason = self.evicted.get(index) or f"its {tokens:,} tokens do not fit {room}{beside}"
            self._drop(record, candidate, tokens, reason)
        self.dialogue.report(record)

    # The result.

    def prompt(self) -> Prompt:
        segments = [
            Segment(one.section, one.role, one.text, self._draft_tokens(one), one.trust, one.message,
                    one.template, one.message_id, one.sources, one.gap)
            for one in self.laid.drafts
        ]  # fmt: skip
        return Prompt(
            turns=tuple(self.laid.turns),
            segments=tuple(segments),
            token_count=self.total,
            budget=self.budget,
            stable_prefix_tokens=stable_tokens(self.laid, self.counter, self.tools),
            fingerprint=fingerprint(self.hashes),
            hashes=dict(self.hashes),
            counter=self.counter.name,
            exact=counted_exactly(self.counter, self.laid.turns, self.tools),
            tools=self.tools,
            trace=self.trace,
        )

    def _draft_tokens(self, draft: Draft) -> int:
        """The tokens of a segment's text; a past message's calls are part of it."""
        tokens = self.count(draft.text)
        if draft.section == "history":
            for call in self.laid.turns[draft.message].tool_calls:
                tokens += self.count(call.name) + self.count(call.arguments)
        return tokens
