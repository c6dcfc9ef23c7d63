"""The headings that the nodes of a text stand under, block after block."""

from __future__ import annotations

import re
from bisect import bisect_right

from ctxkit.chunking.blocks import Block
from ctxkit.chunking.headings import html_headings, markdown_headings
from ctxkit.chunking.nodes import Kind, Nodes

__all__ = ["Sections"]

_WIKI = re.compile(r"^ ?(?P<marks>=(?: ?=){0,5}) +(?P<title>[^\s=][^\n]{0,200}?) +(?P=marks) *$", re.MULTILINE)


class Sections:
    """Looks up the headings above a node of the block that was entered last.

    Markdown and HTML have headings by their own rules, and plain text and Markdown also those of wikis: `== Title ==`.
    """

    def __init__(self, preset: str) -> None:
        self._preset = preset
        self._stack: list[tuple[int, str]] = []
        self._starts: list[int] = [0]
        self._paths: list[tuple[str, ...]] = [()]
        self._titles: list[tuple[int, str]] = []

    def enter(self, block: Block, nodes: Nodes) -> None:
        """Take in the headings of the next block."""
        self._starts, self._paths = [0], [self._path()]
        text = block.text
        found: list[tuple[int, int, str]] = []
        if self._preset == "html":
            found = [(heading.start, heading.depth, heading.title) for heading in html_headings(text)]
        elif self._preset in ("text", "markdown"):
            fences = [span for span in block.protected if text.startswith(("```", "~~~"), span.start)]
            if self._preset == "markdown":
                found = [(heading.start, heading.depth, heading.title) for heading in markdown_headings(text, fences)]
            if "\n" in text or not block.inside_line:
                found += [
                    (wiki.start(), wiki["marks"].count("="), wiki["title"].strip()) for wiki in _WIKI.finditer(text)
                ]
                found.sort()
        marked: set[int] = set()
        for start, depth, title in found:
            if start == 0 and block.inside_line:
                continue
            while self._stack and self._stack[-1][0] >= depth:
                self._stack.pop()
            self._stack.append((depth, title))
            node = bisect_right(nodes.ends, start)
            marked.add(node)
            if node == self._starts[-1]:
                self._paths[-1] = self._path()
            else:
                self._starts.append(node)
                self._paths.append(self._path())
        self._titles = [
            (node, text[nodes.starts[node] : nodes.ends[node]])
            for node in range(len(nodes))
            if nodes.kinds[node] is Kind.HEADING and node not in marked
        ]

    def at(self, node: int) -> tuple[str, ...]:
        """The headings above a node, outermost first; a heading is in its own section."""
        return self._paths[bisect_right(self._starts, node) - 1]

    def begin(self, node: int) -> int:
        """The first node of the section."""
        return self._starts[bisect_right(self._starts, node) - 1]

    def title(self, node: int) -> str:
        """The nearest heading without marks above a node, in its section; empty where there is none."""
        at = bisect_right(self._titles, (node, "")) - 1
        return self._titles[at][1] if at >= 0 and self._titles[at][0] >= self.begin(node) else ""

    def _path(self) -> tuple[str, ...]:
        return tuple(title for _, title in self._stack)
