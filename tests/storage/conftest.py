"""What the tests of the store share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.storage.making import Workers


@pytest.fixture(scope="session")
def workers() -> Iterator[Workers]:
    """Five processes to write at once with."""
    started = Workers(5)
    yield started
    started.stop()
