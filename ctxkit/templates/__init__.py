"""Templates: what an application tells a model on every request, kept apart from the data of a request.

The language is in `language`, the file form in `text_form`; both fit on a page.
"""

from __future__ import annotations

from ctxkit.templates.cache import TemplateCache
from ctxkit.templates.default import DEFAULT_TEMPLATE
from ctxkit.templates.includes import Include, Resolver
from ctxkit.templates.registry import Reference, TemplateRegistry, parse_reference
from ctxkit.templates.rendering import Piece, RenderedMessage
from ctxkit.templates.slots import WELL_KNOWN, Slot, delimiters
from ctxkit.templates.sync import SyncItem, TemplateSync
from ctxkit.templates.template import Template, TemplateMessage

__all__ = [
    "DEFAULT_TEMPLATE",
    "WELL_KNOWN",
    "Include",
    "Piece",
    "Reference",
    "RenderedMessage",
    "Resolver",
    "Slot",
    "SyncItem",
    "Template",
    "TemplateCache",
    "TemplateMessage",
    "TemplateRegistry",
    "TemplateSync",
    "delimiters",
    "parse_reference",
]
