"""Every failure of a database becomes one error of ours that says what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import (
    DataError,
    DBAPIError,
    IntegrityError,
    InterfaceError,
    OperationalError,
    SQLAlchemyError,
)

from ctxkit.errors import ConflictError, StorageError, StoreFormatError

__all__ = ["is_contention", "translated"]

_CONTENTION_STATES = {"40001", "40P01", "55P03"}  # serialization failure, deadlock, lock not available


def is_contention(error: BaseException) -> bool:
    """Whether somebody else's lock is the only thing wrong, so that the same work may succeed a moment later."""
    if not isinstance(error, DBAPIError):
        return False
    if getattr(error.orig, "sqlstate", None) in _CONTENTION_STATES:
        return True
    text = str(error.orig)
    return isinstance(error, OperationalError) and ("is locked" in text or "is busy" in text)


@contextmanager
def translated(subject: str) -> Iterator[None]:
    """Within it, an error of SQLAlchemy or of a driver leaves as a `StorageError` about `subject`."""
    try:
        yield
    except SQLAlchemyError as error:
        raise _explained(error, subject) from error
    except OverflowError as error:
        raise StorageError(
            f"a number does not fit the database ({error})", subject=subject, remedy="Integers have 64 bits there."
        ) from error


def _explained(error: SQLAlchemyError, subject: str) -> StorageError:
    detail = " ".join(str(getattr(error, "orig", None) or error).split())[:300]
    if is_contention(error):
        return StorageError(
            f"the database is locked by another process ({detail})",
            subject=subject,
            remedy="Wait for the other writer, or end it if it hangs, and try again.",
        )
    if "file is not a database" in detail or "file is encrypted" in detail:
        return StoreFormatError(
            "the file is not a SQLite database", subject=subject, remedy="Give the address of a ctxkit store."
        )
    if "malformed" in detail:
        return StorageError(
            f"the database is damaged ({detail})", subject=subject, remedy="Restore a backup, or ingest into a new one."
        )
    if "readonly database" in detail or "unable to open database file" in detail:
        return StorageError(
            f"the database cannot be written ({detail})",
            subject=subject,
            remedy="Check that its folder exists and that you may write there.",
        )
    if "disk is full" in detail or "No space left" in detail:
        return StorageError(f"the disk is full ({detail})", subject=subject, remedy="Free some space and try again.")
    if isinstance(error, IntegrityError):
        return ConflictError(
            f"the database refuses a conflicting row ({detail})", subject=subject, remedy="Read it again and retry."
        )
    if isinstance(error, DataError):
        return StorageError(
            f"the database refuses a value ({detail})", subject=subject, remedy="Shorten or change the value it names."
        )
    if isinstance(error, OperationalError | InterfaceError):
        return StorageError(
            f"the database cannot be reached or used ({detail})",
            subject=subject,
            remedy="Check that the server runs, and the address, user and password.",
        )
    return StorageError(f"the database failed ({detail})", subject=subject, remedy="Run `ctxkit doctor`.")
