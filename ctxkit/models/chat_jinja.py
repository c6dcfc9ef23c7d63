"""The dialect of Jinja that chat templates are written in, sandboxed.

Source: `apply_chat_template` of transformers, whose environment this follows: trimmed blocks, `tojson` that keeps
Unicode, `raise_exception`, `strftime_now`, loop controls and the `generation` tag.
"""

from __future__ import annotations

import json
from datetime import date
from functools import lru_cache
from typing import Any

from ctxkit.errors import ConfigError, MissingExtraError

__all__ = ["compile_template"]


@lru_cache(maxsize=32)
def compile_template(source: str, today: date) -> Any:
    try:
        from jinja2 import TemplateError, nodes
        from jinja2.ext import Extension, loopcontrols
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ModuleNotFoundError as error:
        raise MissingExtraError("jinja2", extra="local") from error

    class Generation(Extension):
        """`{% generation %}` marks an answer for training; here it is just its body."""

        tags = {"generation"}  # noqa: RUF012  (jinja2 declares it so)

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.Scope(body, lineno=line)

    def refuse(message: str) -> None:
        raise TemplateError(message)

    def tojson(
        value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
    ) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = refuse
    environment.globals["strftime_now"] = today.strftime
    try:
        return environment.from_string(source)
    except TemplateError as error:
        raise ConfigError(
            f"the chat template is malformed ({error})", remedy="Fetch the model again, or repair its template."
        ) from error
