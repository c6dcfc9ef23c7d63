"""What an entity is in the graph: a canonical name and a label."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Node"]


class Node(NamedTuple):
    """An entity of the graph. One name under two labels is two nodes: Washington the person is not the place."""

    name: str
    label: str
