"""What becomes of a file that is not read: skipped on purpose, or failed."""

from __future__ import annotations

from dataclasses import dataclass

from ctxkit.errors import CtxkitError, ReadingError

__all__ = ["Failed", "NothingToRead", "Skipped"]


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file or folder that was left out by a rule, and the reason."""

    source: str
    reason: str


@dataclass(frozen=True, slots=True)
class Failed:
    """A file or folder that should have been read but could not be; `error` is one line and ends with the remedy."""

    source: str
    error: str

    @classmethod
    def of(cls, source: str, error: CtxkitError) -> Failed:
        return cls(source, _line(error))


class NothingToRead(ReadingError):
    """The file is fine but is not text for us (empty, binary, of no known format): a batch reports it as skipped."""

    def skipped(self, source: str) -> Skipped:
        return Skipped(source, _line(self))


def _line(error: CtxkitError) -> str:
    text = f"{error.message.rstrip('.')}. {error.remedy}" if error.remedy else error.message
    return " ".join(text.split())
