"""How the room is divided between history and context."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ctxkit.assembly.allotment import context_room, history_room, steady
from ctxkit.prompts import Budget, Section

sections = st.builds(
    lambda least, more, share, priority: Section(
        min=least, max=None if more is None else least + more, share=share, priority=priority
    ),
    st.integers(0, 300),
    st.one_of(st.none(), st.integers(0, 800)),
    st.one_of(st.none(), st.floats(0, 1)),
    st.integers(-1, 1),
)


@given(sections, sections, st.integers(0, 1_000))
def test_caps_floors_and_the_room_hold(history: Section, context: Section, room: int) -> None:
    budget = Budget(10_000, sections={"history": history, "context": context})
    given_to_history = history_room(budget, room, has_context=True)
    assert 0 <= given_to_history <= history.cap(room)
    left = context_room(budget, room, given_to_history)
    assert 0 <= left <= context.cap(room)
    assert given_to_history + left <= room
    floors = min(history.min, history.cap(room)), min(context.min, context.cap(room))
    if sum(floors) <= room:
        assert given_to_history >= floors[0]
        assert left >= floors[1]


def test_equal_sections_share_evenly() -> None:
    budget = Budget(1_000)
    assert history_room(budget, 800, has_context=True) == 400
    assert history_room(budget, 800, has_context=False) == 800


def test_what_one_may_not_have_is_the_others() -> None:
    budget = Budget(1_000, sections={"context": Section(max=100)})
    assert history_room(budget, 800, has_context=True) == 700
    budget = Budget(1_000, sections={"history": Section(share=0.1)})
    assert history_room(budget, 800, has_context=True) == 80
    assert context_room(budget, 800, 80) == 720


def test_the_higher_priority_is_served_first() -> None:
    first = Budget(1_000, sections={"history": Section(priority=1), "context": Section(min=150)})
    assert history_room(first, 800, has_context=True) == 650
    last = Budget(1_000, sections={"history": Section(min=90), "context": Section(priority=1)})
    assert history_room(last, 800, has_context=True) == 90


def test_minima_beyond_the_room_go_to_the_higher_priority() -> None:
    both = {"history": Section(min=600), "context": Section(min=600, priority=1)}
    assert history_room(Budget(1_000, sections=both), 800, has_context=True) == 200
    both = {"history": Section(min=600, priority=1), "context": Section(min=600)}
    assert history_room(Budget(1_000, sections=both), 800, has_context=True) == 600


def test_the_grid() -> None:
    budget = Budget(3_200)
    assert steady(1_234, 5_000, budget, parts=32) == 1_200
    assert steady(1_234, 1_000, budget, parts=32) == 1_234  # everything fits: nothing is given away
    assert steady(60, 5_000, budget, parts=32) == 60
