"""What windows keep of what was said: the turns that answer questions, and the values that a customer settled."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ctxkit.errors import BudgetError
from ctxkit.evaluation.benchmarks.experiments import wilson
from ctxkit.evaluation.conversations import TaskDialogue, locomo_messages, sessions_of
from ctxkit.evaluation.locomo import Conversation
from ctxkit.evaluation.metrics import mean
from ctxkit.evaluation.report import Bar, Report
from ctxkit.history import Cues, Hysteresis, SemanticWindow, SlidingWindow, TailWindow
from ctxkit.models import OpenAIChatCounter
from ctxkit.protocols import Window

__all__ = ["evidence", "slots"]

ENCODING = "cl100k_base"
BUDGETS = (1_000, 2_000, 4_000)
SESSION = 8
"""Task dialogues in a session: nobody shortens one of 190 tokens."""
SHARES = (0.5, 0.4, 0.3, 0.2)
SAVED = 0.4
"""The share of the tokens that is left when 60 % are saved."""
OURS = "semantic"


def evidence(report: Report, conversations: Sequence[Conversation]) -> None:
    """LoCoMo: windows that see no question, by budget."""
    windows: dict[str, Callable[[], Window]] = {
        "tail": TailWindow,
        "sliding": SlidingWindow,
        OURS: lambda: SemanticWindow(question=""),
        "semantic, coverage alone": lambda: SemanticWindow(question="", cues=_without_cues()),
        "hysteresis around semantic": lambda: Hysteresis(window=SemanticWindow(question="")),
    }
    counter = OpenAIChatCounter(ENCODING)
    recall: dict[tuple[str, int], float] = {}
    for name, make in windows.items():
        window = make()
        row: dict[str, object] = {"measure": "evidence", "system": name}
        for budget in BUDGETS:
            shares, hits, wanted = [], 0, 0
            for conversation in conversations:
                kept = {message.id for message in window.select(locomo_messages(conversation), budget, counter)}
                for _, _, turns in conversation.questions:
                    shares.append(len(turns & kept) / len(turns))
                    hits, wanted = hits + len(turns & kept), wanted + len(turns)
            recall[name, budget] = 100 * mean(shares)
            low, high = wilson(hits, wanted)
            row[f"recall_{budget}"] = round(recall[name, budget], 1)
            row[f"turns_{budget}"] = f"{100 * low:.1f} to {100 * high:.1f}"
        report.rows.append(row)
    for budget in BUDGETS:
        times = recall[OURS, budget] / recall["tail", budget]
        report.bars.append(Bar.at_least(f"evidence_{budget}_times_tail", times, 1.5))


def slots(report: Report, dialogues: Sequence[TaskDialogue]) -> None:
    """SGD: slot values kept, by the share of tokens kept, in sessions of several dialogues and in single ones."""
    windows: dict[str, Callable[[], Window]] = {
        "tail": TailWindow,
        "sliding": SlidingWindow,
        OURS: SemanticWindow,
        "semantic, coverage alone": lambda: SemanticWindow(cues=_without_cues()),
    }
    found: dict[tuple[str, int, float], float] = {}
    for size in (SESSION, 1):
        for name, make in windows.items():
            window = make()
            row: dict[str, object] = {"measure": "slots", "system": name, "dialogues_in_a_session": size}
            for share in SHARES:
                kept, wanted, saved = _slots(window, dialogues, size, share)
                low, high = wilson(kept, wanted)
                found[name, size, share] = 100 * kept / wanted
                row[f"recall_at_{round(100 * saved)}%_saved"] = f"{found[name, size, share]:.1f}"
                if share == SAVED:
                    row["interval_at_60%"] = f"{100 * low:.1f} to {100 * high:.1f}"
            report.rows.append(row)
    ours = found[OURS, SESSION, SAVED]
    report.bars += [
        Bar.at_least("slot_recall_at_60%_saved", ours, 95.0),
        Bar.at_least("slot_recall_above_tail", ours - found["tail", SESSION, SAVED], 0.0),
        Bar.at_least("slot_recall_above_sliding", ours - found["sliding", SESSION, SAVED], 0.0),
    ]


def _slots(window: Window, dialogues: Sequence[TaskDialogue], size: int, share: float) -> tuple[int, int, float]:
    """Slots kept, slots, and the share of the tokens that is saved at least."""
    counter = OpenAIChatCounter(ENCODING)
    kept = wanted = 0
    for session in sessions_of(dialogues, size):
        messages = [message for dialogue in session for message in dialogue.messages]
        budget = int(counter.count_prompt(messages) * share)
        wanted += sum(len(dialogue.slots) for dialogue in session)
        try:
            ids = frozenset(message.id for message in window.select(messages, budget, counter))
        except BudgetError:
            continue
        kept += sum(dialogue.kept_slots(ids) for dialogue in session)
    return kept, wanted, 1 - share


def _without_cues() -> Cues:
    return Cues(**dict.fromkeys(Cues.__dataclass_fields__, 1.0))
