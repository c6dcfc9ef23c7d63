"""The template that is used where an application has none of its own."""

from __future__ import annotations

from ctxkit.templates.template import Template

__all__ = ["DEFAULT_TEMPLATE"]

DEFAULT_TEMPLATE = Template.parse(
    """\
---
name: default
description: Answers from the documents, with citations; short, so that small local models follow it.
---

--- system ---
Answer the question using only the numbered documents in the user's message.
After each fact, cite its document by number, like [1].
If the documents do not hold the answer, say: "The documents do not say."

--- history ---

--- user ---
Documents:
{{context}}

Question: {{question}}
"""
)
"""Answer from the documents, cite them as [1], say so when they do not hold the answer."""
