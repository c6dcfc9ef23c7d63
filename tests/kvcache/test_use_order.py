"""Who is given up first: never one that is spared, ends before beginnings, and what is used again stays."""

from __future__ import annotations

import random
from collections import OrderedDict

from hypothesis import given, settings
from hypothesis import strategies as st

from ctxkit.kvcache.use_order import UseOrder

keys = st.sampled_from("abcdefgh")
actions = st.one_of(
    st.tuples(st.just("use"), st.lists(keys, unique=True, max_size=5)),
    st.tuples(st.just("add"), st.lists(keys, unique=True, max_size=3)),
    st.tuples(st.just("remove"), st.lists(keys, unique=True, max_size=2)),
)


@settings(max_examples=200)
@given(st.lists(actions, max_size=30), st.sets(keys))
def test_a_victim_is_held_and_not_spared(steps: list[tuple[str, list[str]]], spared: set[str]) -> None:
    order = UseOrder()
    held: set[str] = set()
    for action, chosen in steps:
        if action == "use":
            order.use(chosen)
        for key in chosen if action != "use" else ():
            getattr(order, action)(key)
            held = held | {key} if action == "add" else held - {key}
        assert len(order) == len(held) and all(key in order for key in held)
        victim = order.victim(spared)
        assert (victim is None) == (not held - spared)
        assert victim is None or victim in held - spared


def test_before_anything_is_learned_the_least_recently_used_goes_and_ends_go_first() -> None:
    order = UseOrder()
    for request in (["a1", "a2"], ["b1", "b2"]):
        order.use(request)
        for key in request:
            order.add(key)
    gone = []
    while (victim := order.victim(())) is not None:
        gone.append(victim)
        order.remove(victim)
    assert gone == ["a2", "a1", "b2", "b1"]


def test_what_is_asked_for_again_and_again_outlives_what_is_read_once() -> None:
    """Forty prompts in turn among twice as many that come once: LRU in the same room finds half as many."""
    chance = random.Random(1)
    size, hits, hits_of_lru = 60, 0, 0
    order, lru = UseOrder(), OrderedDict[str, None]()
    for number in range(6_000):
        key = f"hot{chance.randrange(40)}" if number % 3 == 0 else f"once{number}"
        hits += key in order
        hits_of_lru += key in lru
        order.use([key])
        order.add(key)
        while len(order) > size:
            order.remove(order.victim(()) or "")
        lru[key] = None
        lru.move_to_end(key)
        if len(lru) > size:
            lru.popitem(last=False)
    assert hits > 1_500 > 1.8 * hits_of_lru, (hits, hits_of_lru)


def test_a_conversation_that_goes_on_outlives_a_later_prompt_that_was_all_new() -> None:
    order = UseOrder()

    def ask(keys: list[str], room: int = 60) -> list[str]:
        order.use(keys)
        for key in keys:
            order.add(key)
        gone = []
        while len(order) > room:
            gone.append(order.victim(()) or "")
            order.remove(gone[-1])
        return gone

    for number in range(600):
        turn, conversation = number % 20, number // 20
        ask([f"c{conversation}.{block}" for block in range(11 + turn)])  # one block more each time
        ask([f"new{number}.{block}" for block in range(12)])
    ask([f"last.{block}" for block in range(11)])
    ask([f"last.{block}" for block in range(12)])
    gone = ask([f"new.{block}" for block in range(12)], room=0)
    assert max(gone.index(f"new.{block}") for block in range(12)) < gone.index("last.11") < gone.index("last.0")
