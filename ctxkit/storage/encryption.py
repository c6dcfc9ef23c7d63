"""Encryption at rest of what messages say: AES-GCM, bound to the place where a message is stored."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ctxkit.errors import ConfigError, CtxkitError, StorageError
from ctxkit.settings import require

__all__ = ["Encryption"]

KeyProvider = Callable[[str], bytes]

_SIZES = (16, 24, 32)
_NONCE = 12
_KEY_ID_LIMIT = 200


@dataclass(frozen=True, kw_only=True, eq=False)
class Encryption:
    """The keys of a store's messages: `Store.open(url, encryption=Encryption.of(key))`.

    AES-GCM (NIST SP 800-38D) with a random nonce of 96 bits a message; one key is good for 2^32 messages. Tenant,
    session, sequence, id, role, name and `tool_call_id` are the associated data, so a ciphertext that was moved to
    another place, or whose role was changed, is refused. Needs the extra `encryption`.

    Args:
        keys: the keys by their ids, 16, 24 or 32 bytes each; or a function that gives the key of an id, which is
            asked once for each id.
        current: the id of the key that new messages are encrypted with. It is stored with each message, so older
            messages stay readable as long as `keys` has theirs.

    Raises:
        ConfigError: a key has another length, or `current` is no key.
        MissingExtraError: the package `cryptography` is not installed.

    Example:
        >>> Encryption.of(bytes(32)).current
        'k-c0dfcbb8250e'
    """

    keys: Mapping[str, bytes] | KeyProvider = field(repr=False)
    current: str
    _ciphers: dict[str, Any] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        require("cryptography", extra="encryption")
        if not isinstance(self.current, str) or not self.current or len(self.current) > _KEY_ID_LIMIT:
            raise ConfigError(
                f"current is {self.current!r:.60}", remedy=f"Give the id of a key, of 1 to {_KEY_ID_LIMIT} characters."
            )
        if isinstance(self.keys, Mapping):
            for name, key in self.keys.items():
                _checked(key, name)
            if self.current not in self.keys:
                raise ConfigError(f"there is no key {self.current!r}", remedy="Name one of `keys` as the current one.")
        elif not callable(self.keys):
            raise ConfigError(
                f"keys is a {type(self.keys).__name__}", remedy="Give keys by their ids, or a function of an id."
            )

    @classmethod
    def of(cls, key: bytes, *, key_id: str = "") -> Encryption:
        """One key. Its id is made of its hash unless one is given."""
        _checked(key, key_id or "the key")
        name = key_id or "k-" + hashlib.sha256(b"ctxkit key id" + key).hexdigest()[:12]
        return cls(keys={name: key}, current=name)

    @classmethod
    def from_environment(cls, variable: str = "CTXKIT_SESSION_KEYS") -> Encryption | None:
        """The keys that the variable holds, in base64 or hex and with commas between; the first is the current one.

        None where the variable is not set. A key's id is made of its hash, so old keys just stay on the list.
        """
        found = [text.strip() for text in os.environ.get(variable, "").split(",") if text.strip()]
        keys = [cls.of(_decoded(text, variable)) for text in found]
        if not keys:
            return None
        return cls(keys={key.current: key._key(key.current) for key in keys}, current=keys[0].current)

    def seal(self, text: str, bound: Sequence[Any]) -> str:
        """The text encrypted with the current key, in base64. `bound` must be given again to open it."""
        nonce = os.urandom(_NONCE)
        sealed = self._cipher(self.current).encrypt(nonce, text.encode(), _associated(self.current, bound))
        return base64.b64encode(nonce + sealed).decode("ascii")

    def open(self, sealed: str, key_id: str, bound: Sequence[Any]) -> str:
        """The text. Raises `StorageError` where the key is missing or another one, or anything was changed."""
        from cryptography.exceptions import InvalidTag

        cipher = self._cipher(key_id)
        try:
            raw = base64.b64decode(sealed, validate=True)
            return str(cipher.decrypt(raw[:_NONCE], raw[_NONCE:], _associated(key_id, bound)).decode())
        except (InvalidTag, ValueError) as error:
            raise StorageError(
                "an encrypted message cannot be read: the key is another one, or the message was moved or changed",
                subject=_shown(bound),
                remedy=f"Give the key whose id is {key_id!r}; if that is what you gave, restore a backup.",
            ) from error

    def _cipher(self, key_id: str) -> Any:
        found = self._ciphers.get(key_id)
        if found is None:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM

            found = self._ciphers[key_id] = AESGCM(self._key(key_id))
        return found

    def _key(self, key_id: str) -> bytes:
        try:
            key = self.keys[key_id] if isinstance(self.keys, Mapping) else self.keys(key_id)
        except CtxkitError:
            raise
        except Exception as error:
            # The error of a key service may show its request, so it is the cause and not the text.
            raise StorageError(
                f"there is no key {key_id!r} ({type(error).__name__})",
                subject=key_id,
                remedy="Open the store with the key of this id among its keys.",
            ) from error
        return _checked(key, key_id)


def needs_key(subject: str, key_id: str | None = None) -> StorageError:
    """The error of a store that was opened without keys."""
    named = f" with the key {key_id!r}" if key_id else ""
    return StorageError(
        f"this session is encrypted{named}, and the store was opened without a key",
        subject=subject,
        remedy="Open it with Store.open(url, encryption=Encryption.of(key)).",
    )


def _decoded(text: str, variable: str) -> bytes:
    try:
        key = bytes.fromhex(text)
    except ValueError:
        try:
            key = base64.b64decode(text, validate=True)
        except ValueError as error:
            raise ConfigError(
                "a key is neither base64 nor hex", subject=f"${variable}", remedy="Make one: openssl rand -base64 32."
            ) from error
    return _checked(key, f"${variable}")


def _associated(key_id: str, bound: Sequence[Any]) -> bytes:
    return json.dumps([1, key_id, *bound], ensure_ascii=False, separators=(",", ":")).encode()


def _shown(bound: Sequence[Any]) -> str:
    return "/".join(str(value) for value in bound[1:3])


def _checked(key: Any, name: str) -> bytes:
    if not isinstance(key, bytes | bytearray) or len(key) not in _SIZES:
        found = f"{len(key)} bytes" if isinstance(key, bytes | bytearray) else type(key).__name__
        raise ConfigError(
            f"a key of {found}", subject=str(name), remedy="Give 16, 24 or 32 random bytes: secrets.token_bytes(32)."
        )
    return bytes(key)
