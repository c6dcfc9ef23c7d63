"""Files of a folder on their way into the registry: what one includes goes before it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ctxkit.errors import CtxkitError, TemplateError
from ctxkit.templates.folder import TemplateFile
from ctxkit.templates.template import Template

if TYPE_CHECKING:
    from ctxkit.templates.registry import TemplateRegistry

__all__ = ["Pushes"]


class Pushes:
    """Files that become versions, each once.

    Args:
        names: the templates to push, with the version that was the newest when that was planned.
        message, by: go on record with each version.
        label: is moved to each of them; empty for none.
    """

    def __init__(
        self,
        registry: TemplateRegistry,
        files: Mapping[str, TemplateFile],
        names: Mapping[str, int],
        *,
        message: str,
        by: str,
        label: str,
    ) -> None:
        self.by = by
        self.message = message
        self._registry = registry
        self._files = files
        self._waiting = dict(names)
        self._label = label
        self._versions: dict[str, int | CtxkitError] = {}

    def version(self, name: str) -> int:
        """The version that the file of this name became."""
        if name in self._waiting:
            try:
                self._versions[name] = self._push(name, self._waiting.pop(name))
            except CtxkitError as error:
                self._versions[name] = error
        found = self._versions.get(name) or TemplateError(
            "templates include each other in a circle", subject=name, remedy="Take one of the includes out."
        )
        if isinstance(found, CtxkitError):
            raise found
        return found

    def _push(self, name: str, planned: int) -> int:
        template = Template.parse(self._files[name].text, name=name, includes=self._resolve)
        info = next((info for info in self._registry.list(archived=True) if info.name == name), None)
        if info is not None and info.archived_at is not None:
            self._registry.unarchive(name, by=self.by, message=self.message or "its file is back")
        why = {"message": self.message, "by": self.by}
        return self._registry.push(name, template, **why, newest=planned, label=self._label).version

    def _resolve(self, reference: str) -> Template:
        name = reference.partition("@")[0]
        if name in self._waiting:
            self.version(name)
        return self._registry.get(reference)
