"""Shared fixtures. One loaded model and one PostgreSQL server serve the whole run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "ci",
    max_examples=500,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.differing_executors],
    print_blob=True,
)
settings.register_profile("quick", settings.get_profile("ci"), max_examples=50)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@pytest.fixture(scope="session")
def data() -> Path:
    """The evaluation data; tests that need it skip without it."""
    folder = Path(os.environ.get("CTXKIT_DATA") or "../shared/data")
    if not folder.is_dir():
        pytest.skip("the evaluation data is not here: set CTXKIT_DATA")
    return folder.resolve()
