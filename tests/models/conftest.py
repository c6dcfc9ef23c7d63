"""The small local model's counter, and a tiny model with random weights."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ctxkit.errors import ModelNotFoundError
from ctxkit.models import get_chat_counter
from ctxkit.models.template_counting import ChatTemplateCounter

if TYPE_CHECKING:
    from ctxkit.models import LocalModel


@pytest.fixture(scope="session")
def smol_counter() -> ChatTemplateCounter:
    """The counter of SmolLM2; skips where the model is not installed."""
    try:
        counter = get_chat_counter("local")
    except ModelNotFoundError as error:
        pytest.skip(str(error))
    assert isinstance(counter, ChatTemplateCounter)
    return counter


@pytest.fixture(scope="session")
def tiny_model(tiny_folder: Path) -> LocalModel:
    from ctxkit.models import LocalModel

    return LocalModel(tiny_folder)
