"""How the room that the mandatory parts leave is divided between history and context."""

from __future__ import annotations

from ctxkit.prompts import Budget

__all__ = ["context_room", "history_room", "minima_beyond", "steady"]


def history_room(budget: Budget, room: int, *, has_context: bool) -> int:
    """The tokens history may have before anything is known of the context.

    History is settled before retrieval runs, so that retrieval and compression can be told their room. A section of
    higher priority is served first, the other's minimum set aside. Equal ones share evenly, and what one of them may
    not have is the other's (max-min fairness); what it does not use is given on later. Minima beyond the room go to the
    higher priority first.

    Args:
        room: the tokens that the mandatory parts leave.
    """
    history, context = budget.section("history"), budget.section("context")
    cap = history.cap(room)
    if not has_context:
        return cap
    most = context.cap(room)
    floor, other = min(history.min, cap), min(context.min, most)
    if floor + other > room:
        if context.priority > history.priority:
            floor = room - other
        else:
            other = room - floor
    if history.priority > context.priority:
        share = room
    elif history.priority < context.priority:
        share = floor
    else:
        share = max(room // 2, room - most)
    return max(floor, min(cap, share, room - other))


def context_room(budget: Budget, room: int, history_tokens: int) -> int:
    """The tokens the context may have beside a history of `history_tokens`."""
    return max(0, min(budget.section("context").cap(room), room - history_tokens))


def minima_beyond(budget: Budget, room: int, *, has_context: bool) -> dict[str, int]:
    """The minima and the room, where the minima together are more than the room; nothing where they fit."""
    sections = ("history", "context") if has_context else ("history",)
    minima = {name: budget.section(name).min for name in sections}
    return {**minima, "room": room} if sum(minima.values()) > room else {}


def steady(tokens: int, need: int, budget: Budget, *, parts: int) -> int:
    """`tokens` on a coarse grid of `available / parts`, when they are fewer than what is needed.

    A window cuts a history by the tokens it may have. On a grid, a question that is a few tokens longer does not move
    the cut, and the prefix of the prompt stays the same for the next turn (law 7).
    """
    step = max(1, budget.available // parts)
    return tokens if tokens >= need or tokens < step else tokens // step * step
