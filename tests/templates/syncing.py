"""What the tests of a folder and a registry look at."""

from pathlib import Path

from ctxkit.templates import Template, TemplateRegistry


def actions(items) -> dict[str, str]:
    return {item.name: item.action for item in items}


def newest(registry: TemplateRegistry, name: str) -> Template:
    return registry.get(name)


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
