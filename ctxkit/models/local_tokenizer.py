"""A local model's tokenizer in two forms: one for the template's own text, one for data.

The first knows the control tokens. The second cannot produce one: its added tokens are gone, and vocabulary pieces that
spell a control token (`<s>` in many vocabularies) are made unreachable. So data stays data (law 4), whatever it says.
Needs only the `tokenizers` package: neither torch nor transformers is imported.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from ctxkit.documents import content_hash
from ctxkit.errors import ModelError, ModelNotFoundError
from ctxkit.settings import require
from ctxkit.tokens import scalar_text

__all__ = ["LocalTokenizer"]

_SURROGATE = re.compile("[\ud800-\udfff]")


class LocalTokenizer:
    """The tokenizer of a model folder (`tokenizer.json` and its settings).

    Args:
        folder: a folder as `save_pretrained` writes it.

    Attributes:
        control_ids: every id that data must never become. Added tokens of white space alone are not among them (they
            only shorten runs of spaces or newlines), nor is the unknown token.
        digest: SHA-256 of the tokenizer and the template: two folders with equal digests count alike.

    Errors: `ModelNotFoundError` without `tokenizer.json`, `ModelError` when it cannot be read.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        path = self.folder / "tokenizer.json"
        if not path.is_file():
            raise ModelNotFoundError(
                "the folder holds no tokenizer.json",
                subject=str(folder),
                remedy="Save the model's fast tokenizer there with save_pretrained() of transformers.",
            )
        self._tokenizers = require("tokenizers", extra="local", subject=str(folder))
        raw = path.read_text(encoding="utf-8")
        try:
            self._whole = self._tokenizers.Tokenizer.from_str(raw)
            state = json.loads(self._whole.to_str())
        except Exception as error:
            raise ModelError(
                f"the tokenizer cannot be read ({error})",
                subject=str(path),
                remedy="Fetch the model again with `ctxkit models pull`, or save its tokenizer again.",
            ) from error
        self._whole.no_truncation()
        self._whole.no_padding()
        self.settings: dict[str, Any] = _read_json(self.folder / "tokenizer_config.json")
        special = _read_json(self.folder / "special_tokens_map.json")
        self.special: dict[str, str] = {
            name: _content(value)
            for name, value in {**special, **self.settings}.items()
            if name.endswith("_token") and value and isinstance(value, str | dict)
        }
        controls = _controls(state, self.special)
        self.control_texts: frozenset[str] = frozenset(controls.values())
        self.control_ids: frozenset[int] = frozenset(controls)
        self._later = self._tokenizers.Tokenizer.from_str(json.dumps(_without_prefix(state)))
        self._data = self._tokenizers.Tokenizer.from_str(json.dumps(_data_state(state, controls)))
        self.digest = content_hash([raw, self.chat_template, self.special])

    @cached_property
    def chat_template(self) -> str | None:
        """The model's chat template (Jinja), or None."""
        path = self.folder / "chat_template.jinja"
        if path.is_file():
            return path.read_text(encoding="utf-8")
        path = self.folder / "chat_template.json"
        template = _read_json(path).get("chat_template") if path.is_file() else self.settings.get("chat_template")
        if isinstance(template, list):
            named = {str(entry.get("name")): str(entry.get("template")) for entry in template}
            template = named.get("default") or next(iter(named.values()), None)
        return template if isinstance(template, str) else None

    def encode_template(self, text: str, *, first: bool = False) -> list[int]:
        """Ids of text that the template itself wrote: control tokens are parsed. `first`: it opens the prompt."""
        encoder = self._whole if first else self._later
        return list(encoder.encode(scalar_text(text), add_special_tokens=False).ids) if text else []

    def encode_data(self, text: str) -> list[int]:
        """Ids of data: plain text, whatever it looks like. Lone surrogates become U+FFFD. Linear in practice."""
        if not text:
            return []
        return list(self._data.encode(scalar_text(text), add_special_tokens=False).ids)

    def locate_data(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Ids of data, and the characters of `text` that each stands for; pieces of one character share its place."""
        encoding = self._data.encode(_SURROGATE.sub("\ufffd", text), add_special_tokens=False)
        return list(encoding.ids), [(int(start), int(end)) for start, end in encoding.offsets]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of generated ids without control tokens; an incomplete character at the end becomes U+FFFD."""
        return str(self._whole.decode([token for token in ids if token not in self.special_ids]))

    @cached_property
    def special_ids(self) -> frozenset[int]:
        """The control tokens that mark structure and are never text of an answer (`special` in the tokenizer)."""
        tokens = self._whole.get_added_tokens_decoder()
        return frozenset(token for token, added in tokens.items() if added.special)

    def token_id(self, text: str) -> int | None:
        """The id of one token by its text, or None."""
        found = self._whole.token_to_id(text)
        return None if found is None else int(found)

    @property
    def size(self) -> int:
        """How many ids there are."""
        return int(self._whole.get_vocab_size(with_added_tokens=True))


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    loaded = json.loads(path.read_text(encoding="utf-8"))
    return loaded if isinstance(loaded, dict) else {}


def _content(value: str | dict[str, Any]) -> str:
    return value if isinstance(value, str) else str(value.get("content", ""))


def _controls(state: dict[str, Any], special: dict[str, str]) -> dict[int, str]:
    """Id to text of all control tokens: added ones but white space, and the special ones that are vocabulary pieces."""
    unknown = {special.get("unk_token"), state["model"].get("unk_token")}
    controls = {
        int(token["id"]): str(token["content"])
        for token in state.get("added_tokens") or ()
        if token["content"].replace("▁", " ").strip() and (token["special"] or token["content"] not in unknown)
    }
    vocabulary = _vocabulary(state["model"])
    for name, text in special.items():
        if name != "unk_token" and text in vocabulary:
            controls.setdefault(vocabulary[text], text)
    if state["model"]["type"] == "Unigram":
        unknown_id = state["model"].get("unk_id")
        controls.pop(unknown_id, None)
    elif state["model"].get("unk_token") in vocabulary:
        controls.pop(vocabulary[state["model"]["unk_token"]], None)
    return controls


def _vocabulary(model: dict[str, Any]) -> dict[str, int]:
    vocabulary = model["vocab"]
    if isinstance(vocabulary, dict):
        return vocabulary
    return {piece: index for index, (piece, _) in enumerate(vocabulary)}


def _data_state(state: dict[str, Any], controls: dict[int, str]) -> dict[str, Any]:
    """The tokenizer for data: no control token can come out of it."""
    state = _without_prefix(state)
    state["post_processor"] = None
    model = state["model"] = dict(state["model"])
    # A renamed token can no longer be spelled: 128 random bits stand in its name. It is renamed and not removed,
    # because ids of added tokens are given in order when a tokenizer is loaded: one that is gone would shift others.
    secret = secrets.token_hex(16)
    renamed = {text: f"\uffff{secret}{index}" for index, text in controls.items()}
    state["added_tokens"] = [
        {**token, "content": renamed.get(token["content"], token["content"]), "special": False}
        for token in state.get("added_tokens") or ()
    ]
    if isinstance(model["vocab"], dict):
        model["vocab"] = {renamed.get(piece, piece): index for piece, index in model["vocab"].items()}
        if "merges" in model:
            pairs = [merge if isinstance(merge, list) else merge.split(" ") for merge in model["merges"]]
            model["merges"] = [
                pair for pair in pairs if "".join(pair) not in renamed and not renamed.keys() & set(pair)
            ]
    else:
        model["vocab"] = [[renamed.get(piece, piece), score] for piece, score in model["vocab"]]
    return state


def _without_prefix(state: dict[str, Any]) -> dict[str, Any]:
    """The same tokenizer for text inside a prompt: it puts no space before the text."""

    def clean(value: Any) -> Any:
        if isinstance(value, list):
            return [cleaned for item in value if (cleaned := clean(item)) is not None]
        if not isinstance(value, dict):
            return value
        if value.get("type") == "Prepend":
            return None
        value = {key: clean(item) for key, item in value.items()}
        if value.get("type") == "Metaspace":
            value["prepend_scheme"] = "never"
            value.pop("add_prefix_space", None)
        if value.get("type") == "ByteLevel":
            value["add_prefix_space"] = False
        return value

    changed = dict(state)
    for part in ("normalizer", "pre_tokenizer"):
        changed[part] = clean(state[part]) if state.get(part) else None
    return changed
