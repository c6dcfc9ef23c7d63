"""What ctxkit serves over HTTP: so far, templates, to be read."""

from ctxkit.serving.templates import templates_app

__all__ = ["templates_app"]
