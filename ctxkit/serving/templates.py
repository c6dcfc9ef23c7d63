"""Templates over HTTP, to be read: versions at addresses that never change, labels with an ETag.

    GET /v1/templates                              names, newest versions, labels
    GET /v1/templates/{name}/versions/{number}     immutable
    GET /v1/templates/{name}/sha256/{hash}         immutable
    GET /v1/templates/{name}/labels/{label}        the version under a label now; `latest` is the newest one

What is immutable may be held for ever by anybody in between (RFC 9111 and RFC 8246). What is not is good for `max_age`
seconds, and asked for again with `If-None-Match` (RFC 9110), which costs an answer without a body while nothing has
moved. An answer is a JSON object; errors are `{"error": …, "remedy": …}`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ctxkit.checking import check_whole
from ctxkit.documents import content_hash
from ctxkit.errors import ConfigError, CtxkitError, NotFoundError
from ctxkit.settings import require
from ctxkit.templates.registry import Reference, parse_reference
from ctxkit.templates.template import Template

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

    from ctxkit.templates import TemplateRegistry

__all__ = ["templates_app"]

_YEAR = 31_536_000


def templates_app(registry: TemplateRegistry, *, max_age: int = 30, public: bool = False) -> Starlette:
    """An ASGI application that shows one tenant's templates. It only reads; who may ask is for what stands before it.

    Args:
        registry: of one store and tenant. An application is made per tenant: the tenant is never a part of the address.
        max_age: seconds for which a label's answer may be used without asking again.
        public: let shared caches, such as a CDN, hold the answers; else only the client's own may.

    Raises:
        MissingExtraError: the `serve` extra is not installed.
        ConfigError: `max_age` is not a whole number of seconds.
    """
    require("starlette", extra="serve")
    from starlette.applications import Starlette
    from starlette.responses import Response
    from starlette.routing import Route

    check_whole(max_age, "max_age", minimum=0)
    scope = "public" if public else "private"
    forever = f"{scope}, max-age={_YEAR}, immutable"
    for_now = f"{scope}, max-age={max_age}"

    def answer(request: Request, values: Any, tag: str, caching: str, **headers: str) -> Response:
        kept = {"ETag": f'"{tag}"', "Cache-Control": caching, **headers}
        if _matches(request.headers.get("if-none-match"), tag):
            return Response(status_code=304, headers=kept)
        body = json.dumps(values, ensure_ascii=False, separators=(",", ":"), default=str)
        return Response(body, headers=kept, media_type="application/json")

    def failed(error: CtxkitError) -> Response:
        status = 404 if isinstance(error, NotFoundError) else 400 if isinstance(error, ConfigError) else 503
        body = json.dumps({"error": f"{error.subject}: {error.message}".removeprefix(": "), "remedy": error.remedy})
        # What is not there may be there soon; what failed must not be held at all.
        caching = for_now if status == 404 else "no-store"
        return Response(body, status_code=status, headers={"Cache-Control": caching}, media_type="application/json")

    def one(request: Request, reference: str, caching: str, *, of: Callable[[Reference], bool]) -> Response:
        try:
            wanted = parse_reference(reference)
            if not of(wanted):  # one version has one address of each kind
                raise ConfigError(
                    "not an address of this kind",
                    subject=reference[:200],
                    remedy="Use versions/NUMBER, sha256/HASH or labels/LABEL.",
                )
            version = registry.version(wanted)
            source = Template.from_content(version.content, name=version.name, version=version.version).source
        except CtxkitError as error:
            return failed(error)
        values = {
            "name": version.name,
            "version": version.version,
            "hash": version.hash,
            "created_at": version.created_at.isoformat(),
            "content": version.content,
            "source": source,
        }
        place = f"/v1/templates/{version.name}/versions/{version.version}"
        return answer(request, values, version.hash, caching, **{"Content-Location": place})

    # Plain functions: Starlette runs them in threads, and what they do is ask a database.

    def by_number(request: Request) -> Response:
        parameters = request.path_params
        reference = f"{parameters['name']}@{parameters['number']}"
        return one(request, reference, forever, of=lambda wanted: wanted.version is not None)

    def by_hash(request: Request) -> Response:
        parameters = request.path_params
        # The beginning of a hash may come to name nothing, or two; only the whole one is immutable.
        caching = forever if len(parameters["hash"]) == 64 else for_now
        reference = f"{parameters['name']}@sha256:{parameters['hash']}"
        return one(request, reference, caching, of=lambda wanted: wanted.hash is not None)

    def by_label(request: Request) -> Response:
        parameters = request.path_params
        # `latest` is no label, and asks for neither a number nor a hash.
        reference = f"{parameters['name']}@{parameters['label']}"
        return one(request, reference, for_now, of=lambda wanted: wanted.version is None and wanted.hash is None)

    def every(request: Request) -> Response:
        try:
            values = [
                {"name": info.name, "versions": info.versions, "labels": dict(info.labels)} for info in registry.list()
            ]
        except CtxkitError as error:
            return failed(error)
        return answer(request, values, content_hash(values), for_now)

    return Starlette(
        routes=[
            Route("/v1/templates", every),
            Route("/v1/templates/{name:path}/versions/{number:str}", by_number),
            Route("/v1/templates/{name:path}/sha256/{hash:str}", by_hash),
            Route("/v1/templates/{name:path}/labels/{label:str}", by_label),
        ]
    )


def _matches(header: str | None, tag: str) -> bool:
    """Whether one of the tags of If-None-Match is this one; weak ones compare alike (RFC 9110, 13.1.2)."""
    if header is None:
        return False
    tags = [part.strip().removeprefix("W/") for part in header.split(",")]
    return "*" in tags or f'"{tag}"' in tags
