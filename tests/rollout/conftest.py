"""Experiments in a store, on both databases in turn, and in one that is gone after the test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ctxkit.rollout import Experiments
from ctxkit.storage import Store


@pytest.fixture
def experiments(store: Store) -> Experiments:
    return Experiments(store)


@pytest.fixture
def memory() -> Iterator[Experiments]:
    with Store.open("sqlite://") as store:
        yield Experiments(store)
