"""`ctxkit kv stats|warm|gc|verify` (`plan` in `kv_plan`), and where `ctxkit ask` finds the store of keys and values."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ctxkit.cli import kv_plan
from ctxkit.cli.output import EmbedderOption, JsonOption, StoreOption, TenantOption, emit, progress, say, table
from ctxkit.errors import ConfigError, NotFoundError

if TYPE_CHECKING:
    from ctxkit.kvcache.store import BlockStore

__all__ = ["KvCodecOption", "KvOption", "app", "kv_folder"]

DEFAULT_FOLDER = Path(".ctxkit/kv")

FolderOption = typer.Option(None, "--kv", help="The folder of keys and values. [default: $CTXKIT_KV, else .ctxkit/kv]")
KvOption = typer.Option(
    None,
    "--kv",
    help="A folder: a local model keeps the keys and values of prompts there, and reads no prefix twice; or off. "
    "[default: $CTXKIT_KV, else .ctxkit/kv where that exists]",
)
KvCodecOption = typer.Option("none", "--kv-codec", help="How they are packed: none changes no bit of an answer.")

app = typer.Typer(help="The stored keys and values of local models.", no_args_is_help=True)
kv_plan.add_to(app)


def kv_folder(value: str | None) -> Path | None:
    """Where keys and values are kept, or None: nothing is written where nobody made a store."""
    chosen = value if value is not None else os.environ.get("CTXKIT_KV")
    if chosen:
        return None if chosen == "off" else Path(chosen)
    return DEFAULT_FOLDER if DEFAULT_FOLDER.is_dir() else None


def _folder(value: str | None) -> Path:
    if "off" in (value, os.environ.get("CTXKIT_KV") if value is None else None):
        raise ConfigError(
            "the store of keys and values is off", remedy="Give --kv FOLDER, or leave --kv off and $CTXKIT_KV away."
        )
    return kv_folder(value) or DEFAULT_FOLDER


def _opened(value: str | None, **options: Any) -> BlockStore:
    from ctxkit.kvcache.store import BlockStore

    folder = _folder(value)
    if not folder.is_dir():
        raise NotFoundError(
            "there is no store of keys and values",
            subject=str(folder),
            remedy="Make one: ctxkit kv warm QUESTION, or ctxkit ask --kv FOLDER QUESTION.",
        )
    return BlockStore(folder, memory_bytes=0, **options)


@app.command()
def stats(kv: str | None = FolderOption, as_json: bool = JsonOption) -> None:
    """Say how many blocks of keys and values are stored, of which codecs, and what they take.

    Example: ctxkit kv stats
    """
    with _opened(kv, disk_bytes=None) as store:
        found = store.stats()
        counts: Counter[tuple[str, str]] = Counter()
        tokens: Counter[tuple[str, str]] = Counter()
        nbytes: Counter[tuple[str, str]] = Counter()
        for key in store.stored_keys():
            block = store.head(key)
            if block is not None:
                kind = (block.codec, block.lineage)
                counts[kind] += 1
                tokens[kind] += len(block.ids)
                nbytes[kind] += block.nbytes
        rows = [
            {
                "codec": kind[0],
                "lineage": kind[1],
                "blocks": counts[kind],
                "tokens": tokens[kind],
                "bytes": nbytes[kind],
                "bytes_per_token": round(nbytes[kind] / max(1, tokens[kind])),
            }
            for kind in sorted(counts)
        ]
        quarantine = _folder(kv) / "quarantine"
        values = {
            "folder": str(_folder(kv)),
            "blocks": found.disk_blocks,
            "bytes": found.disk_bytes,
            "quarantined": len(list(quarantine.glob("*.json"))) if quarantine.is_dir() else 0,
            "kinds": rows,
        }
    if as_json:
        emit(values)
        return
    say(f"{values['folder']}: {found.disk_blocks:,} blocks, {found.disk_bytes:,} bytes")
    if rows:
        say(table(rows))
    if values["quarantined"]:
        say(f"{values['quarantined']} damaged blocks lie in {quarantine}")


@app.command()
def warm(
    queries: list[str] = typer.Argument(..., help="Questions as they will be asked."),
    model: str = typer.Option("local", "--model", help="local or local:PATH."),
    template: str | None = typer.Option(None, "--template", help="A template, such as answer@production."),
    kv: str | None = FolderOption,
    kv_codec: str = KvCodecOption,
    embedder: str = EmbedderOption,
    store: str | None = StoreOption,
    tenant: str | None = TenantOption,
    as_json: bool = JsonOption,
) -> None:
    """Read the prompts of questions ahead, so that asking finds their keys and values computed.

    Example: ctxkit kv warm "how do I rotate the key" --template answer@production
    """
    from ctxkit.engine import ContextEngine
    from ctxkit.prompts import CompletionOptions

    if model.partition(":")[0] != "local":
        raise ConfigError(
            "only a local model has keys and values to keep", subject=model, remedy="Give --model local or local:PATH."
        )
    folder = _folder(kv)
    rows = []
    with (
        progress("Reading", quiet=as_json) as status,
        ContextEngine.open(
            store, tenant=tenant, create=False, embedder=embedder, kv=folder, kv_codec=kv_codec
        ) as engine,
    ):
        for query in queries:
            status(query)
            answer = engine.ask(query, model=model, template=template, options=CompletionOptions(max_tokens=1))
            usage = answer.completion.usage
            rows.append({"query": query, "tokens": usage.prompt_tokens, "reused": usage.cached_tokens})
    emit({"folder": str(folder), "prompts": rows}) if as_json else say(table(rows))


@app.command()
def gc(
    max_bytes: int | None = typer.Option(None, "--max-bytes", min=0, help="Also bring the folder under so many bytes."),
    kv: str | None = FolderOption,
    as_json: bool = JsonOption,
) -> None:
    """Delete what interrupted writers left behind, and the blocks of the least expected use over a budget.

    Example: ctxkit kv gc --max-bytes 1000000000
    """
    with _opened(kv, disk_bytes=max_bytes) as store:
        before = store.stats()
        freed = store.collect()
        after = store.stats()
        values = {
            "folder": str(_folder(kv)),
            "freed_bytes": freed,
            "blocks_before": before.disk_blocks,
            "blocks": after.disk_blocks,
            "bytes": after.disk_bytes,
        }
    if as_json:
        emit(values)
    else:
        say(f"freed {freed:,} bytes; {after.disk_blocks:,} blocks with {after.disk_bytes:,} bytes are left")


@app.command()
def verify(kv: str | None = FolderOption, as_json: bool = JsonOption) -> None:
    """Read every block and check every byte. What is damaged is put aside and computed again; exit 1 if there is any.

    Example: ctxkit kv verify
    """
    damaged = []
    count = 0
    with progress("Checking", quiet=as_json) as status, _opened(kv, disk_bytes=None) as store:
        for key, block in store.verify():
            count += 1
            status(key[:16])
            if block is None:
                damaged.append(key)
        problems = [{"key": problem.key, "problem": problem.what} for problem in store.problems]
    if as_json:
        emit({"folder": str(_folder(kv)), "blocks": count, "damaged": damaged, "problems": problems})
    else:
        say(f"{count:,} blocks, {len(damaged):,} damaged")
        if problems:
            say(table(problems))
    if damaged:
        raise typer.Exit(1)
