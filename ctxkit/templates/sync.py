"""Templates in a folder of files and in the registry, kept the same, both ways.

Three states are compared for each template: its file, the newest version in the registry, and the base, which is what
both were when they were last the same. The base is kept in `.ctxkit-sync.json` in the folder, to be committed with the
files, so that every clone knows it. Who alone has moved away from the base is followed; where both have, that is a
conflict: it is shown, and nothing of it is written until somebody says which side is right.
"""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from ctxkit.errors import ConfigError, ConflictError, CtxkitError, NotFoundError
from ctxkit.templates.folder import TemplateFile, TemplateFolder, replace_file, text_hash
from ctxkit.templates.pushing import Pushes
from ctxkit.templates.template import Template

if TYPE_CHECKING:
    from ctxkit.storage.records import TemplateVersion
    from ctxkit.templates.registry import TemplateRegistry

__all__ = ["STATE_FILE", "SyncItem", "TemplateSync"]

STATE_FILE = ".ctxkit-sync.json"
_FORMAT = 1

Action = Literal["same", "push", "pull", "archive", "remove", "conflict", "error"]
Direction = Literal["both", "push", "pull"]
Side = Literal["folder", "registry"]


@dataclass(frozen=True, slots=True)
class SyncItem:
    """What a synchronisation finds for one template, or has done.

    Args:
        action: `push` (the file becomes a version), `pull` (the newest version becomes the file), `archive` (the file
            is gone, so the template is archived), `remove` (the template is archived, so the file goes), `same`,
            `conflict` or `error`.
        diff: from what is overwritten to what takes its place, unified; of a conflict, from registry to folder.
        reason: of a conflict or an error.
        version: that is or was made the newest.
        skipped: the direction does not include it.
    """

    name: str
    action: Action
    diff: str = ""
    reason: str = ""
    version: int = 0
    skipped: bool = False

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "action": self.action,
            "version": self.version,
            "skipped": self.skipped,
            "reason": self.reason,
            "diff": self.diff,
        }


@dataclass(frozen=True, slots=True)
class _Base:
    hash: str  # of the version's content
    text: str  # the hash of the file's text


class TemplateSync:
    """Keeps a folder and a registry the same.

    Args:
        registry: of one store and tenant.
        folder: of the files; must exist.
        direction: `push` changes only the registry, `pull` only the folder.

    Example:
        >>> import tempfile
        >>> from ctxkit import ContextEngine
        >>> engine = ContextEngine.open("sqlite://", embedder=None)
        >>> version = engine.templates.push("greet", "Hello {{name}}")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     [(item.name, item.action) for item in TemplateSync(engine.templates, folder).run()]
        [('greet', 'pull')]
    """

    def __init__(
        self, registry: TemplateRegistry, folder: str | os.PathLike[str], *, direction: Direction = "both"
    ) -> None:
        if direction not in ("both", "push", "pull"):
            raise ConfigError("unknown direction", subject=str(direction), remedy="Say both, push or pull.")
        self.registry = registry
        self.folder = TemplateFolder(folder)
        self.direction = direction

    def plan(self, *, prefer: Mapping[str, Side] | None = None) -> list[SyncItem]:
        """What `run` would do, by name. Changes nothing.

        Args:
            prefer: for names in conflict, the side that is right.
        """
        return self._plan(prefer)[0]

    def _plan(self, prefer: Mapping[str, Side] | None) -> tuple[list[SyncItem], dict[str, TemplateFile]]:
        sides = dict(prefer or {})
        for name, side in sides.items():
            if side not in ("folder", "registry"):
                raise ConfigError("unknown side", subject=f"{name}={side}", remedy="Say folder or registry.")
        base = self._read_base()
        files = {file.name: file for file in self.folder.files()}
        unread = {name: file.error for name, file in files.items() if file.error is not None and _is_folder(name)}
        newest, archived = self._newest()
        names = sorted({*base, *files, *newest})
        if unknown := sorted(sides.keys() - set(names)):
            problem = "a side is preferred for a template that neither side has"
            raise ConfigError(problem, subject=unknown[0], remedy="Give the name as the conflict shows it.")
        taken: dict[str, str] = {}
        items = []
        for name in names:
            try:
                for folder, unreadable in unread.items():
                    if name.startswith(folder) and name not in files:
                        raise unreadable  # what cannot be seen is not gone
                item = self._item(name, base.get(name), files, newest.get(name), name in archived, sides.get(name))
            except CtxkitError as problem:
                item = _error(name, str(problem))
            if item is None:
                continue
            twin = taken.setdefault(name.lower(), name)
            if twin != name and item.action in ("pull", "push"):
                item = _error(name, f"it differs from {twin!r} by case alone")
            items.append(item)
        return items, files

    def run(
        self,
        *,
        prefer: Mapping[str, Side] | None = None,
        message: str = "",
        by: str = "",
        label: str = "",
    ) -> list[SyncItem]:
        """Do what `plan` says; what became of each template. One that fails does not stop the others.

        Args:
            message, by: go on record with the versions that are pushed.
            label: is moved to each of them.
        """
        items, files = self._plan(prefer)
        self.folder.sweep()
        planned = {item.name: item.version for item in items}
        pushing = {item.name: item.version for item in items if item.action == "push" and not item.skipped}
        push = Pushes(self.registry, files, pushing, message=message, by=by, label=label)
        done = []
        for item in items:
            try:
                done.append(item if item.skipped else self._do(item, files, push))
            except CtxkitError as error:
                done.append(_error(item.name, str(error)))
        self._write_base(done, files, planned)
        return done

    # --------------------------------------------------------------------------------------------- one template

    def _newest(self) -> tuple[dict[str, TemplateVersion], set[str]]:
        newest: dict[str, TemplateVersion] = {}
        archived = set()
        for info in self.registry.list(archived=True):
            try:
                newest[info.name] = self.registry.version(info.name)
            except NotFoundError:  # none that is not archived
                archived.add(info.name)
                continue
            if info.archived_at is not None:
                archived.add(info.name)
        return newest, archived

    def _item(
        self,
        name: str,
        base: _Base | None,
        files: Mapping[str, TemplateFile],
        stored: TemplateVersion | None,
        archived: bool,
        side: Side | None,
    ) -> SyncItem | None:
        file = files.get(name)
        if file is not None and file.error is not None:
            return _error(name, str(file.error))
        source = "" if stored is None else Template.from_content(stored.content, name=name).source
        text = None if file is None else file.text
        live = None if stored is None or archived else stored
        if stored is None and not archived:
            base = None  # a registry deletes nothing: the base speaks of another one, where this template was
        if text is None and live is None:
            return None
        file_moved = (None if text is None else text_hash(text)) != (None if base is None else base.text)
        store_moved = (None if live is None else live.hash) != (None if base is None else base.hash)
        version = 0 if stored is None else stored.version
        shown = text or ""
        if text is not None and live is not None and (not file_moved and not store_moved):
            return SyncItem(name, "same", version=version)
        if text is not None and file_moved:
            try:
                parsed = self._parse(name, files)
            except CtxkitError as error:
                return _error(name, str(error))
            if live is not None and live.hash == parsed.hash:
                return SyncItem(name, "same", version=version)
            shown = parsed.source  # in its canonical form, so that a diff has no differences in layout
        winner: Side | None = side
        if winner is None and file_moved != store_moved:
            winner = "folder" if file_moved else "registry"
        if winner is None:
            what = f"version {version}" if live is not None else "archived"
            return SyncItem(
                name,
                "conflict",
                _diff(source if live is not None else "", shown, f"{name}@{version}", "folder"),
                f"changed on both sides: the registry has {what}, the file is "
                + ("gone" if text is None else "different"),
                version,
            )
        stored_text = source if live is not None else ""
        if winner == "folder":
            action: Action = "archive" if text is None else "push"
            diff = _diff(stored_text, shown, f"{name}@{version}" if version else "nothing", "folder")
            return SyncItem(name, action, diff, version=version, skipped=self.direction == "pull")
        action = "remove" if live is None else "pull"
        self.folder.path(name)  # a name that no file can have is an error before anything is done
        diff = _diff(shown, stored_text, "folder" if text is not None else "nothing", f"{name}@{version}")
        return SyncItem(name, action, diff, version=version, skipped=self.direction == "push")

    def _parse(self, name: str, files: Mapping[str, TemplateFile]) -> Template:
        """The template of a file, its includes from the folder where that is newer: to see whether it is one."""

        def resolve(reference: str) -> Template:
            included, _, which = reference.partition("@")
            file = files.get(included)
            if file is not None and file.error is not None:
                file = None
            if file is not None and which in ("", "latest"):
                return Template.parse(file.text, name=included, includes=resolve)
            try:
                return self.registry.get(reference)
            except NotFoundError:
                if file is None or which.isdecimal() or ":" in which:
                    raise
                return Template.parse(file.text, name=included, includes=resolve)  # `label` may be put on it first

        return Template.parse(files[name].text, name=name, includes=resolve)

    def _do(self, item: SyncItem, files: dict[str, TemplateFile], push: Pushes) -> SyncItem:
        if item.action == "push":
            version = push.version(item.name)
            again = f"this is version {version} again; version {item.version} stays the newest one"
            return replace(item, version=version, reason=again if version < item.version else "")
        if item.action == "archive":
            if self.registry.version(item.name).version != item.version:
                raise _moved(item.name)
            self.registry.archive(item.name, by=push.by, message=push.message or "its file was deleted")
        if item.action in ("pull", "remove"):
            self._check_unchanged(item.name, files)
        if item.action == "pull":
            source = self._source(item)
            self.folder.write(item.name, source)
            files[item.name] = TemplateFile(item.name, source)
        if item.action == "remove":
            self.folder.remove(item.name)
        return item

    def _source(self, item: SyncItem) -> str:
        version = self.registry.version(f"{item.name}@{item.version}")
        return Template.from_content(version.content, name=item.name).source

    def _check_unchanged(self, name: str, files: Mapping[str, TemplateFile]) -> None:
        path = self.folder.path(name)
        now = self.folder.read(name) if path.exists() else None
        if now != (files[name].text if name in files else None):
            raise ConflictError(
                "the file was changed while this ran", subject=name, remedy="Synchronise again: it was not touched."
            )

    # --------------------------------------------------------------------------------------------------- the base

    def _read_base(self) -> dict[str, _Base]:
        path = self.folder.root / STATE_FILE
        if not path.exists() and not path.is_symlink():
            return {}
        try:
            if path.is_symlink():
                raise ValueError("it is a symbolic link")
            values = json.loads(path.read_text(encoding="utf-8"))
            if values["format"] != _FORMAT:
                raise ValueError(f"format {values['format']}")
            return {name: _Base(str(base["hash"]), str(base["text"])) for name, base in values["templates"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ConfigError(
                f"what was last synchronised cannot be read ({error})",
                subject=str(path),
                remedy="Restore the file, or delete it: then what differs is a conflict, and nothing is lost.",
            ) from error

    def _write_base(self, done: list[SyncItem], files: Mapping[str, TemplateFile], planned: Mapping[str, int]) -> None:
        """Note what was compared or written. Who has moved on meanwhile is seen by the next run."""
        base = self._read_base()
        for item in done:
            if item.skipped or item.action in ("conflict", "error"):
                continue
            if item.action in ("archive", "remove"):
                base.pop(item.name, None)
            else:
                # A file that is an old version again leaves the newest one where it was: known, and no change.
                version = self.registry.version(f"{item.name}@{max(item.version, planned[item.name])}")
                base[item.name] = _Base(version.hash, text_hash(files[item.name].text))
        for name in set(base) - {item.name for item in done}:
            del base[name]  # gone on both sides
        templates = {name: {"hash": base[name].hash, "text": base[name].text} for name in sorted(base)}
        path = self.folder.root / STATE_FILE
        text = json.dumps({"format": _FORMAT, "templates": templates}, indent=1) + "\n"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            try:
                replace_file(path, text)
            except OSError as error:
                raise ConfigError(
                    f"what was synchronised cannot be noted ({error.strerror or error})",
                    subject=str(path),
                    remedy="Check the folder, its permissions and the room on the disk, and synchronise again.",
                ) from error


def _is_folder(name: str) -> bool:
    return not name or name.endswith("/")


def _moved(name: str) -> ConflictError:
    return ConflictError(
        "the registry has a newer version since this began", subject=name, remedy="Synchronise again, and see it first."
    )


def _diff(before: str, after: str, name_before: str, name_after: str) -> str:
    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), name_before, name_after
    )
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end\n" for line in lines)


def _error(name: str, reason: str) -> SyncItem:
    return SyncItem(name, "error", reason=reason)
