"""The small local model's tokenizer, and tokenizers made here whose traps no small model has."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ctxkit.errors import ModelNotFoundError
from ctxkit.models import get_chat_counter
from ctxkit.models.template_counting import ChatTemplateCounter

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


@pytest.fixture(scope="session")
def smol_counter() -> ChatTemplateCounter:
    """The counter of SmolLM2; skips where the model is not installed."""
    try:
        counter = get_chat_counter("local")
    except ModelNotFoundError as error:
        pytest.skip(str(error))
    assert isinstance(counter, ChatTemplateCounter)
    return counter


def write_tokenizer(folder: Path, tokenizer: object, template: str | None, **special: str) -> Path:
    """A model folder that holds only a tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))  # type: ignore[attr-defined]
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", **special}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    if template is not None:
        (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    return folder
