"""Templates over HTTP, asked by a real client over a real socket."""

import http.client
import json
import threading

import pytest

from ctxkit import ContextEngine
from ctxkit.errors import ConfigError
from ctxkit.serving import templates_app


@pytest.fixture
def engine(tmp_path):
    with ContextEngine.open(f"sqlite:///{tmp_path}/store.db", embedder=None) as opened:
        opened.templates.push("support/answer", "--- system ---\nBe {{tone}}.")
        opened.templates.push("support/answer", "--- system ---\nBe very {{tone}}.")
        opened.templates.label("support/answer", "production", 1)
        yield opened


@pytest.fixture
def ask(engine):
    import uvicorn

    config = uvicorn.Config(templates_app(engine.templates, max_age=7, public=True), port=0, log_level="error")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        thread.join(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]

    def request(path: str, method: str = "GET", **headers: str):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        response = connection.getresponse()
        body = response.read()
        connection.close()
        return response.status, {name.lower(): value for name, value in response.getheaders()}, body

    yield request
    server.should_exit = True
    thread.join(10)


def test_versions_are_immutable_and_labels_are_asked_again(engine, ask):
    status, headers, body = ask("/v1/templates/support/answer/versions/1")
    assert (status, headers["cache-control"]) == (200, "public, max-age=31536000, immutable")
    found = json.loads(body)
    assert (found["name"], found["version"], found["content"]["messages"][0]["content"]) == (
        "support/answer",
        1,
        "Be {{tone}}.",
    )
    assert headers["etag"] == f'"{found["hash"]}"'
    assert ask(f"/v1/templates/support/answer/sha256/{found['hash']}")[2] == body
    assert "immutable" not in ask(f"/v1/templates/support/answer/sha256/{found['hash'][:12]}")[1]["cache-control"]

    status, headers, body = ask("/v1/templates/support/answer/labels/production")
    assert (status, headers["cache-control"]) == (200, "public, max-age=7")
    assert headers["content-location"] == "/v1/templates/support/answer/versions/1"
    tag = headers["etag"]
    status, headers, body = ask("/v1/templates/support/answer/labels/production", If_None_Match=f'"x", W/{tag}')
    assert (status, body, headers["etag"]) == (304, b"", tag)
    engine.templates.label("support/answer", "production", 2)
    status, headers, _ = ask("/v1/templates/support/answer/labels/production", If_None_Match=tag)
    assert (status, headers["content-location"]) == (200, "/v1/templates/support/answer/versions/2")
    assert json.loads(ask("/v1/templates/support/answer/labels/latest")[2])["version"] == 2


def test_the_list_and_its_tag(engine, ask):
    _, headers, body = ask("/v1/templates")
    assert json.loads(body) == [{"name": "support/answer", "versions": 2, "labels": {"production": 1}}]
    assert ask("/v1/templates", If_None_Match=headers["etag"])[0] == 304
    engine.templates.label("support/answer", "production", 2)
    assert ask("/v1/templates", If_None_Match=headers["etag"])[0] == 200
    assert ask("/v1/templates", method="HEAD")[2] == b""


def test_what_is_not_there_and_what_is_not_allowed(ask):
    for path in (
        "/v1/templates/nobody/versions/1",
        "/v1/templates/support/answer/versions/9",
        "/v1/templates/support/answer/labels/staging",
        "/v1/templates/support/answer/sha256/" + "0" * 64,
        "/v1/other",
    ):
        assert ask(path)[0] == 404
    status, _, body = ask("/v1/templates/..%2f..%2fetc/labels/passwd%00")
    assert status in (400, 404)
    assert b"Traceback" not in body
    assert ask("/v1/templates/support/answer/sha256/xyz")[0] == 400
    for path in (
        "versions/" + "9" * 5_000,
        "versions/production",
        "versions/0",
        "labels/1",
        f"labels/sha256:{'0' * 64}",
    ):
        assert ask(f"/v1/templates/support/answer/{path}")[0] == 400
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        assert ask("/v1/templates", method=method)[0] == 405


def test_another_tenant_sees_nothing(engine):
    from starlette.testclient import TestClient

    other = templates_app(ContextEngine(engine.store.for_tenant("other"), embedder=None).templates)
    with TestClient(other) as client:
        assert client.get("/v1/templates").json() == []
        assert client.get("/v1/templates/support/answer/versions/1").status_code == 404
        assert client.get("/v1/templates").headers["cache-control"].startswith("private")


def test_wrong_options(engine):
    with pytest.raises(ConfigError, match="max_age"):
        templates_app(engine.templates, max_age=-1)
