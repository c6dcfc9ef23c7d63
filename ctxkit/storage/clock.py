"""Times as the store writes them."""

from __future__ import annotations

from datetime import UTC, datetime

__all__ = ["moment", "now", "stamp"]


def now() -> str:
    """This moment in UTC, always with microseconds, so that texts sort as times do."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def stamp(moment: datetime | None) -> str | None:
    """ISO 8601 with the offset it has."""
    return None if moment is None else moment.isoformat()


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)
