"""Times as the store writes them."""

from __future__ import annotations

from datetime import UTC, datetime

from ctxkit.errors import StorageError

__all__ = ["moment", "now", "stamp"]


def now() -> str:
    """This moment in UTC, always with microseconds, so that texts sort as times do."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def stamp(moment: datetime | None) -> str | None:
    """ISO 8601 with the offset it has."""
    return None if moment is None else moment.isoformat()


def moment(text: str) -> datetime:
    """The time of a text that the store wrote. Raises `StorageError` where it is none any more."""
    try:
        return datetime.fromisoformat(text)
    except ValueError as error:
        raise StorageError(
            "what is stored is not the time that was written",
            subject=ascii(text[:40]),
            remedy="Something else has changed the database: restore a backup of it.",
        ) from error
