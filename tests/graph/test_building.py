"""The graph: what is counted, how it is weighted, that it adds up, and that it stays linear."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxkit.documents import Chunk, Document, Entity, Span
from ctxkit.graph import EntityGraph, Node
from ctxkit.graph.building import NEAR, document_graph, links_of
from tests.graph.making import arrays, chunk_mentions, dense, fewer, named, names
from tests.timing import doubling

documents = st.lists(chunk_mentions, max_size=4)


def graph_of(*written: list[list[tuple[str, str]]]) -> EntityGraph:
    """The graph of these documents; their chunks' keys count up from 1."""
    parts, key = [], 1
    for number, chunks in enumerate(written):
        document, pieces = named(chunks, f"d{number}")
        parts.append(document_graph(document.text, pieces, range(key, key + len(pieces))))
        key += len(pieces)
    return EntityGraph.from_counts(parts)


class TestLinks:
    def by_definition(self, sequence: list[int], near: int) -> set[tuple[int, int]]:
        """Each mention with the last `near` different others before it: the definition, quadratic."""
        found = set()
        for at, node in enumerate(sequence):
            others: list[int] = []
            for other in reversed(sequence[:at]):
                if other != node and other not in others:
                    others.append(other)
            found |= {(min(node, other), max(node, other)) for other in others[:near]}
        return found

    @given(st.lists(st.integers(0, 7), max_size=40), st.integers(1, 4))
    def test_each_mention_with_the_last_others(self, sequence: list[int], near: int) -> None:
        assert links_of(sequence, near) == self.by_definition(sequence, near)

    @given(st.lists(st.integers(0, NEAR), max_size=30))
    def test_few_entities_are_linked_in_all_pairs(self, sequence: list[int]) -> None:
        some = sorted(set(sequence))
        assert links_of(sequence) == {(a, b) for a in some for b in some if a < b}

    def test_many_are_not(self) -> None:
        assert len(links_of(range(5_000))) == NEAR * 5_000 - NEAR * (NEAR + 1) // 2
        assert links_of([1] * 10_000) == set()
        assert len(links_of([1, 2] * 10_000)) == 1

    @pytest.mark.parametrize("shape", ["different", "repeated", "in turn"])
    def test_twice_the_entities_take_twice_the_time(self, shape: str) -> None:
        def building(count: int) -> Callable[[], object]:
            words = {
                "different": [f"Name{number}" for number in range(count)],
                "repeated": ["Name"] * count,
                "in turn": ["Name", "Other"] * (count // 2),
            }[shape]
            document, chunks = named([names(*words)])
            return lambda: document_graph(document.text, chunks)

        doubling(building, 2_500)


class TestCounts:
    @fewer
    @given(chunk_mentions)
    def test_every_name_is_counted_where_it_stands(self, chunks: list[list[tuple[str, str]]]) -> None:
        document, pieces = named(chunks)
        graph = document_graph(document.text, pieces)
        assert list(graph.nodes) == sorted(set(graph.nodes))
        counted = Counter[int]()
        for chunk, _, times in graph.mentions.tolist():
            counted[chunk] += times
        expected = {at: sum(label != "CARDINAL" for _, label in words) for at, words in enumerate(chunks)}
        assert counted == Counter(expected)
        assert len(graph.links) <= NEAR * len(document.text)
        assert all(a < b for a, b, _ in graph.links.tolist()) and all(a < b for a, b in graph.aliases.tolist())
        assert all(1 <= times <= len(chunks) for _, _, times in graph.links.tolist())
        in_links = {node for a, b, _ in graph.links.tolist() for node in (a, b)}
        assert in_links <= set(graph.mentions[:, 1].tolist()), "what is linked is named"

    def test_what_only_counts_or_is_blank_is_no_entity(self) -> None:
        document = Document("d", "three  mice")
        entities = (Entity("three", "CARDINAL", Span(0, 5)), Entity(" ", "NAME", Span(5, 6)))
        assert not document_graph(document.text, [Chunk.of(document, Span(0, 11), 1, entities=entities)])

    def test_the_order_in_which_a_chunk_lists_its_entities_does_not_matter(self) -> None:
        document, (chunk,) = named([names(*(f"Name{number}" for number in range(20)))])
        shuffled = list(chunk.entities)
        Random(7).shuffle(shuffled)
        other = Chunk.of(document, chunk.span, 1, entities=tuple(shuffled))
        one, two = document_graph(document.text, [chunk]), document_graph(document.text, [other])
        assert one.nodes == two.nodes and one.links.tolist() == two.links.tolist()


class TestGraph:
    def test_an_empty_one(self) -> None:
        graph = graph_of([], [[]], [[("three", "CARDINAL")]])
        assert (len(graph), graph.keys.tolist(), graph.frequency.tolist()) == (0, [], [])
        assert graph.node_of("Ada").tolist() == graph.nodes_of(1).tolist() == []
        assert graph.chunks_of(graph.node_of("Ada")).tolist() == []
        assert graph.mentions.shape == graph.links.shape == graph.aliases.shape == (0, 0)

    def test_who_is_named_where(self) -> None:
        graph = graph_of([names("Ada", "Paris", "Ada"), names("Bob")], [names("Paris")])
        assert graph.nodes == (Node("ada", "NAME"), Node("bob", "NAME"), Node("paris", "NAME"))
        assert graph.keys.tolist() == [1, 2, 3]
        assert dense(graph.mentions).tolist() == [[2, 0, 1], [0, 1, 0], [0, 0, 1]]
        assert graph.frequency.tolist() == [1, 1, 2]
        assert graph.chunks_of(graph.node_of("PARIS")).tolist() == [1, 3]
        assert graph.chunks_of(0).tolist() == [1]
        assert graph.chunks_of(np.array([0, 1])).tolist() == [1, 2]
        assert graph.nodes_of(1).tolist() == [0, 2]
        assert graph.nodes_of(4).tolist() == graph.nodes_of(-1).tolist() == []
        assert repr(graph) == "EntityGraph(3 chunks, 3 entities, 4 mentions, 1 links, 0 aliases)"

    def test_one_name_under_two_labels_is_two_entities(self) -> None:
        graph = graph_of([[("Washington", "PERSON"), ("Washington", "GPE")]])
        assert len(graph.node_of("washington")) == 2
        assert graph.node_of("Washington", "GPE").tolist() == [0]

    @pytest.mark.parametrize("written", ["ada", "ADA", "  Ada ", "Ada's", "the Ada", "Ada."])
    def test_a_name_is_found_however_it_is_written(self, written: str) -> None:
        assert graph_of([names("Ada")]).node_of(written).tolist() == [0]

    def test_what_one_document_calls_one_thing_joins_the_others(self) -> None:
        graph = graph_of([names("Tim Cook", "Cook")], [names("Cook")])
        full, short = graph.node_of("Tim Cook"), graph.node_of("Cook")
        assert graph.chunks_of(full).tolist() == [1], "there Cook is Tim Cook"
        assert graph.chunks_of(short).tolist() == [2], "who this Cook is, nobody knows"
        assert dense(graph.aliases)[full, short] == dense(graph.aliases)[short, full] == 1

    def test_an_alias_that_nobody_uses_alone_is_known_too(self) -> None:
        graph = graph_of([names("Tim Cook", "Cook")])
        assert graph.frequency[graph.node_of("Cook")] == 0
        assert graph.aliases.nnz == 2

    @fewer
    @given(documents)
    def test_the_shape(self, written: list[list[list[tuple[str, str]]]]) -> None:
        graph = graph_of(*written)
        n, m = len(graph.keys), len(graph.nodes)
        assert graph.mentions.shape == (n, m)
        assert graph.keys.tolist() == sorted(set(graph.keys.tolist()))
        assert list(graph.nodes) == sorted(set(graph.nodes))
        for matrix in (graph.links, graph.aliases):
            assert matrix.shape == (m, m) and matrix.dtype == np.float32
            full = dense(matrix)
            assert (full == full.T).all() and not full.diagonal().any()
            assert (matrix.data > 0).all() and (matrix.data <= 1).all()
        for key in graph.keys.tolist():
            for node in graph.nodes_of(key).tolist():
                assert key in graph.chunks_of(node)

    @fewer
    @given(documents, st.randoms(use_true_random=False))
    def test_the_order_of_the_documents_does_not_matter(
        self, written: list[list[list[tuple[str, str]]]], rng: Random
    ) -> None:
        parts, chunks, key = [], {}, 1
        for number, one in enumerate(written):
            document, pieces = named(one, f"d{number}")
            keys = range(key, key + len(pieces))
            parts.append(document_graph(document.text, pieces, keys))
            chunks.update(zip(keys, pieces, strict=True))
            key += len(pieces)
        expected = arrays(EntityGraph.from_counts(parts))
        rng.shuffle(parts)
        items = list(chunks.items())
        rng.shuffle(items)
        assert arrays(EntityGraph.from_counts(parts)) == expected
        assert arrays(EntityGraph.from_chunks(dict(items))) == expected


class TestWeights:
    def test_two_that_are_never_without_each_other(self) -> None:
        assert dense(graph_of([names("Ada", "Bob")] * 3).links).tolist() == [[0, 1], [1, 0]]

    def test_one_that_is_close_to_everything_is_close_to_nothing(self) -> None:
        others = [f"Name{number}" for number in range(6)]
        # Each pair of neighbours in a ring is close twice as often as either is to the hub.
        chunks = [names(a, b) for a, b in zip(others, others[1:] + others[:1], strict=True)] * 4
        graph = graph_of([*chunks, *(names("Hub", other) for other in others)])
        hub, one, two = (graph.node_of(name)[0] for name in ("Hub", "Name0", "Name1"))
        weights = dense(graph.links)
        assert weights[one, two] > weights[hub, one]

    @fewer
    @given(documents)
    def test_they_are_positive_npmi(self, written: list[list[list[tuple[str, str]]]]) -> None:
        """Once more by the formula, in exact counts and Python's own floats."""
        counts: Counter[tuple[Node, Node]] = Counter()
        for number, one in enumerate(written):
            document, pieces = named(one, f"d{number}")
            part = document_graph(document.text, pieces)
            for a, b, times in part.links.tolist():
                left, right = Node(*part.nodes[a]), Node(*part.nodes[b])
                counts[left, right] += times
                counts[right, left] += times
        total = sum(counts.values())
        share: Counter[Node] = Counter()
        for (left, _), times in counts.items():
            share[left] += times
        graph = graph_of(*written)
        weights = dense(graph.links)
        for i, left in enumerate(graph.nodes):
            for j, right in enumerate(graph.nodes):
                times = counts[left, right]
                expected = 0.0
                if times:
                    information = math.log(times / total / (share[left] / total * share[right] / total))
                    expected = max(0.0, information / -math.log(times / total))
                assert weights[i, j] == pytest.approx(expected, abs=1e-6)


def test_from_chunks_puts_a_text_together_for_what_it_defines() -> None:
    text = "The World Health Organization (WHO) met.   \n\n  WHO said so."
    document = Document("d", text)
    at = text.rindex("WHO")
    chunks = {
        4: Chunk.of(document, Span(0, 40), 1, entities=(Entity("World Health Organization", "NAME", Span(4, 29)),)),
        9: Chunk.of(document, Span(47, len(text)), 1, entities=(Entity("WHO", "NAME", Span(at, at + 3)),)),
    }
    graph = EntityGraph.from_chunks(chunks)
    assert graph.chunks_of(graph.node_of("World Health Organization")).tolist() == [4, 9]
