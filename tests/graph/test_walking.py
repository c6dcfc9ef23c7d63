"""The walk: a distribution, the same as networkx finds, whatever the order of the places; nothing is fine too."""

from __future__ import annotations

from collections.abc import Callable

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, random_array

from ctxkit.errors import ConfigError
from ctxkit.graph.walking import Walk
from tests.timing import doubling

Graph = tuple[NDArray[np.float64], NDArray[np.float64]]


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Weights of a small graph, some edges missing and some places isolated, and a start with some weight."""
    size = draw(st.integers(1, 7))
    some = st.sampled_from([0.0, 0.0, 0.0, 0.25, 1.0, 3.0])
    weights = draw(arrays(np.float64, (size, size), elements=some))
    start = draw(arrays(np.float64, size, elements=st.sampled_from([0.0, 1.0, 2.0])))
    start[draw(st.integers(0, size - 1))] += 1.0
    return weights, start


dampings = st.sampled_from([0.0, 0.3, 0.5, 0.85])


@given(graphs(), dampings)
def test_it_is_a_distribution(graph: Graph, damping: float) -> None:
    weights, start = graph
    found = Walk.over(csr_matrix(weights)).from_places(start, damping=damping)
    assert found.min() >= 0
    assert found.sum() == pytest.approx(1.0)


@given(graphs(), dampings)
def test_networkx_finds_the_same(graph: Graph, damping: float) -> None:
    weights, start = graph
    found = Walk.over(csr_matrix(weights)).from_places(start, damping=damping, tolerance=1e-12, most=500)
    oracle = nx.pagerank(
        nx.from_numpy_array(weights, create_using=nx.DiGraph),
        alpha=damping,
        personalization=dict(enumerate(start.tolist())),
        tol=1e-13,
        max_iter=500,
    )
    assert found == pytest.approx([oracle[place] for place in range(len(start))], abs=1e-9)


@given(graphs(), dampings, st.randoms(use_true_random=False))
def test_the_order_of_the_places_does_not_matter(graph: Graph, damping: float, random: object) -> None:
    weights, start = graph
    order = np.array(sorted(range(len(start)), key=lambda _: random.random()))  # type: ignore[attr-defined]
    found = Walk.over(csr_matrix(weights)).from_places(start, damping=damping)
    moved = Walk.over(csr_matrix(weights[np.ix_(order, order)])).from_places(start[order], damping=damping)
    assert moved == pytest.approx(found[order], abs=1e-9)


@given(graphs(), dampings)
def test_the_same_again(graph: Graph, damping: float) -> None:
    weights, start = graph
    walk = Walk.over(csr_matrix(weights))
    first = walk.from_places(start, damping=damping)
    assert np.array_equal(walk.from_places(start, damping=damping), first)
    assert walk.from_places(start * 4, damping=damping) == pytest.approx(first)


def test_nothing_and_nowhere() -> None:
    assert Walk.over(csr_matrix((0, 0))).from_places([]).tolist() == []
    lonely = Walk.over(csr_matrix((3, 3)))
    assert lonely.from_places([0, 2, 2]).tolist() == [0, 0.5, 0.5]
    assert lonely.from_places([0, 0, 0]).tolist() == [0, 0, 0]


def test_without_damping_it_stays_at_home() -> None:
    walk = Walk.over(csr_matrix(np.ones((3, 3))))
    assert walk.from_places([1, 3, 0], damping=0).tolist() == [0.25, 0.75, 0]


@pytest.mark.parametrize(
    ("weights", "start", "options"),
    [
        (np.ones((2, 3)), [1, 1], {}),
        (np.array([[0, -1.0], [1, 0]]), [1, 1], {}),
        (np.array([[0, np.inf], [1, 0]]), [1, 1], {}),
        (np.ones((2, 2)), [1, 1, 1], {}),
        (np.ones((2, 2)), [1, -1], {}),
        (np.ones((2, 2)), [1, np.nan], {}),
        (np.ones((2, 2)), [1, 1], {"damping": 1.0}),
        (np.ones((2, 2)), [1, 1], {"damping": -0.1}),
        (np.ones((2, 2)), [1, 1], {"tolerance": 0}),
        (np.ones((2, 2)), [1, 1], {"most": 0}),
    ],
)
def test_what_makes_no_sense_is_refused(weights: object, start: list[float], options: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        Walk.over(csr_matrix(weights)).from_places(start, **options)  # type: ignore[arg-type]


def test_time_grows_with_the_edges() -> None:
    def walking(size: int) -> Callable[[], object]:
        weights = random_array((size, size), density=8 / size, format="csr", rng=np.random.default_rng(0))
        start = np.zeros(size)
        start[:20] = 1
        return lambda: Walk.over(weights).from_places(start, damping=0.7, tolerance=1e-300, most=30)

    doubling(walking, 20_000, most=3)  # twice the edges; caches cost a little on top
