"""`ctxkit templates serve`: the templates over HTTP, to be read."""

from __future__ import annotations

import typer

from ctxkit.cli.output import StoreOption, TenantOption, say
from ctxkit.settings import require

__all__ = ["add_to"]


def add_to(app: typer.Typer) -> None:
    """Mount the command."""
    app.command()(serve)


def serve(
    host: str = typer.Option("127.0.0.1", help="The address to listen on."),
    port: int = typer.Option(8471, min=0, max=65_535, help="The port; 0 for any that is free."),
    max_age: int = typer.Option(30, min=0, help="Seconds for which a label's answer may be held."),
    public: bool = typer.Option(False, help="Let shared caches, such as a CDN, hold the answers."),
    store: str | None = StoreOption,
    tenant: str | None = TenantOption,
) -> None:
    """Serve one tenant's templates over HTTP, read-only: versions immutable, labels with an ETag.

    There is no authentication: keep it on the loopback address, or behind what checks who asks.

    Example: ctxkit templates serve --port 8471
    """
    uvicorn = require("uvicorn", extra="serve")
    from ctxkit.engine import ContextEngine
    from ctxkit.serving import templates_app

    with ContextEngine.open(store, tenant=tenant, embedder=None, create=False) as engine:
        app = templates_app(engine.templates, max_age=max_age, public=public)
        say(f"http://{host}:{port}/v1/templates")
        uvicorn.run(app, host=host, port=port, log_level="warning")
