"""What the environment decides, and what happens when an optional package is not there."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ctxkit import settings
from ctxkit.errors import MissingExtraError


class TestRequire:
    def test_it_gives_the_module(self) -> None:
        assert settings.require("json.decoder", extra="none") is sys.modules["json.decoder"]

    @pytest.mark.parametrize("module", ["no_such_package", "no_such_package.inner.part"])
    def test_a_missing_package_names_its_extra(self, module: str) -> None:
        with pytest.raises(MissingExtraError) as caught:
            settings.require(module, extra="local", subject="Dense")
        assert caught.value.package == "no_such_package"
        assert "ctxkit-sdk[local]" in caught.value.remedy
        assert caught.value.subject == "Dense"
        assert isinstance(caught.value.__cause__, ModuleNotFoundError)

    def test_a_package_that_is_there_but_broken_says_so_itself(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "broken_package.py").write_text("import something_it_forgot_to_declare\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        with pytest.raises(ModuleNotFoundError, match="something_it_forgot_to_declare"):
            settings.require("broken_package", extra="local")


class TestEnvironment:
    def test_store(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CTXKIT_STORE", "sqlite:///other.db")
        assert settings.default_store() == "sqlite:///other.db"
        for unset in ("", None):
            if unset is None:
                monkeypatch.delenv("CTXKIT_STORE")
            else:
                monkeypatch.setenv("CTXKIT_STORE", unset)
            assert settings.default_store() == "sqlite:///.ctxkit/store.db"

    def test_tenant(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CTXKIT_TENANT", "acme")
        assert settings.default_tenant() == "acme"
        monkeypatch.delenv("CTXKIT_TENANT")
        assert settings.default_tenant() == "default"

    def test_cache(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CTXKIT_CACHE", str(tmp_path))
        assert settings.cache_dir() == tmp_path
        monkeypatch.delenv("CTXKIT_CACHE")
        monkeypatch.setenv("HOME", str(tmp_path))
        assert settings.cache_dir().name == "ctxkit"
        assert settings.cache_dir().is_absolute()

    def test_data(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CTXKIT_DATA", str(tmp_path))
        assert settings.data_dir() == tmp_path
        monkeypatch.setenv("CTXKIT_DATA", str(tmp_path / "absent"))
        assert settings.data_dir() is None
