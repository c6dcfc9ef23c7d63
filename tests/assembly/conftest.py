"""Counters the laws of assembly are tested with."""

from __future__ import annotations

import pytest

from ctxkit.models import ChatTemplateCounter, OpenAIChatCounter
from ctxkit.protocols import ChatCounter
from tests.assembly.counters import tiny_counter


@pytest.fixture(scope="session", params=["openai", "local"])
def counter(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ChatCounter:
    """OpenAI's counter, which joins a message's parts; and a chat template's, which encodes each part by itself."""
    if request.param == "openai":
        return OpenAIChatCounter("gpt-4o")
    return tiny_counter(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def local_counter(tmp_path_factory: pytest.TempPathFactory) -> ChatTemplateCounter:
    return tiny_counter(tmp_path_factory.mktemp("tiny"))
