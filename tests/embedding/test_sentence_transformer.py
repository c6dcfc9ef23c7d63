"""The real MiniLM: conformance, offline, quiet, one load a process, fingerprints."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from ctxkit import registry
from ctxkit.embedding import SentenceTransformerEmbedder, fingerprints, minilm
from ctxkit.embedding import sentence_transformer as module
from ctxkit.errors import ConfigError, EmbeddingError, MissingExtraError, ModelNotFoundError
from ctxkit.protocols import Embedder
from ctxkit.testing import EmbedderConformance
from tests.strategies import NASTY

pytestmark = pytest.mark.model


class TestMiniLM(EmbedderConformance):
    def make_embedder(self) -> Embedder:
        return minilm(device="cpu")


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """The model's folder without its weights, and small stand-in weights: enough for fingerprints."""
    folder = tmp_path / "model"
    shutil.copytree(minilm().folder, folder, ignore=shutil.ignore_patterns("model.safetensors"))
    (folder / "model.safetensors").write_bytes(b"weights")
    return folder


def test_every_nasty_text_has_a_unit_vector() -> None:
    vectors = minilm().embed(NASTY)
    assert vectors.shape == (len(NASTY), 384)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-4)


def test_the_order_and_the_size_of_batches_do_not_matter() -> None:
    texts = [f"sentence {'and more ' * (number % 17)} {number}" for number in range(50)]
    forward = minilm().embed(texts)
    backward = minilm(batch_size=7).embed(texts[::-1])[::-1]
    np.testing.assert_allclose(forward, backward, atol=1e-5)


def test_the_same_call_gives_the_same_bytes() -> None:
    assert minilm().embed(["a question"]).tobytes() == minilm().embed(["a question"]).tobytes()


def test_a_text_over_the_models_length_is_cut() -> None:
    long = "word " * 1000
    np.testing.assert_allclose(minilm().embed([long])[0], minilm().embed([long + "tail"])[0], atol=1e-5)


def test_max_length_changes_the_vectors_and_the_fingerprint() -> None:
    short = minilm(max_length=8)
    text = "one two three four five six seven eight nine ten"
    assert short.fingerprint != minilm().fingerprint
    assert not np.allclose(short.embed([text]), minilm().embed([text]), atol=1e-3)
    with pytest.raises(ConfigError, match="512"):
        minilm(max_length=4000).embed(["x"])


def test_known_values() -> None:
    """Similar and dissimilar sentences of the model card's kind, by the real weights."""
    a, b, c = minilm().embed(["That is a happy person", "That is a happy dog", "Today is a sunny day"])
    assert float(a @ b) == pytest.approx(0.6945, abs=2e-3)
    assert float(a @ c) == pytest.approx(0.2569, abs=2e-3)


def test_it_is_loaded_once_from_many_threads() -> None:
    results: list[np.ndarray] = []
    threads = [threading.Thread(target=lambda: results.append(minilm().embed(["shared"]))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 8
    for result in results:
        np.testing.assert_array_equal(result, results[0])
    assert len([key for key in module._loaded if key[1:] == ("auto", None)]) == 1


def test_it_writes_nothing_to_the_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    embedder = SentenceTransformerEmbedder(model=minilm().folder, device="cpu", max_length=77)
    embedder.embed(["quiet please"])
    captured = capfd.readouterr()
    assert captured.out == captured.err == ""


def test_it_is_registered() -> None:
    assert registry.create("embedder", "minilm", batch_size=4).batch_size == 4


def test_the_fingerprint_follows_the_content_and_not_the_place(
    copied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CTXKIT_CACHE", str(tmp_path / "cache"))
    first = fingerprints.fingerprint_folder(copied)
    moved = copied.rename(tmp_path / "moved")
    assert fingerprints.fingerprint_folder(moved) == first
    fingerprints.fingerprint_folder.cache_clear()
    (moved / "model.safetensors").write_bytes(b"other weights")
    assert fingerprints.fingerprint_folder(moved) != first
    (moved / "model.safetensors").write_bytes(b"weights")
    (moved / "1_Pooling" / "config.json").write_text("{}")
    fingerprints.fingerprint_folder.cache_clear()
    assert fingerprints.fingerprint_folder(moved) != first


def test_the_fingerprint_is_remembered_and_a_damaged_memory_is_not_believed(
    copied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CTXKIT_CACHE", str(tmp_path / "cache"))
    first = fingerprints.fingerprint_folder(copied)
    (remembered,) = (tmp_path / "cache" / "fingerprints").iterdir()
    assert remembered.read_text() == first
    for damage in ("", "st-", "nonsense" * 9):
        remembered.write_text(damage)
        fingerprints.fingerprint_folder.cache_clear()
        assert fingerprints.fingerprint_folder(copied) == first


def test_a_cache_that_cannot_be_written_costs_only_time(
    copied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("CTXKIT_CACHE", str(tmp_path / "file"))
    assert fingerprints.fingerprint_folder(copied).startswith("st-")


def test_errors_say_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="batch_size"):
        minilm(batch_size=0)
    with pytest.raises(ConfigError, match="max_length"):
        minilm(max_length=0)
    with pytest.raises(ConfigError, match="one text"):
        minilm().embed("not a list")
    with pytest.raises(ModelNotFoundError, match="all-MiniLM-L6-v2"):
        SentenceTransformerEmbedder(model="nobody/has-this-model")
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(EmbeddingError, match="whole"):
        SentenceTransformerEmbedder(model=tmp_path).embed(["x"])
    with pytest.raises(EmbeddingError):
        minilm(device="no-such-device").embed(["x"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(EmbeddingError, match="no model"):
        SentenceTransformerEmbedder(model=tmp_path / "empty").fingerprint  # noqa: B018
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name.startswith("gt_") else found(name, *rest)
    )
    with pytest.raises(MissingExtraError, match=r"ctxkit-sdk\[local\]"):
        minilm()


def test_loading_and_embedding_look_for_no_network() -> None:
    """Even attempts that a library would swallow are seen: every name looked up and every connection is recorded."""
    code = (
        "import socket\nseen = []\n"
        "def refuse(*arguments, **options):\n    seen.append(arguments)\n    raise OSError('no network here')\n"
        "socket.getaddrinfo = socket.create_connection = socket.socket.connect = refuse\n"
        "from ctxkit.embedding import minilm\n"
        "minilm(device='cpu').embed(['offline'])\nprint(seen)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


def test_importing_the_room_imports_nothing_heavy() -> None:
    code = (
        "import sys, ctxkit.embedding, ctxkit.retrieval; "
        "print([name for name in ('torch', 'transformers', 'sentence_transformers', 'faiss', 'sqlalchemy', 'scipy') "
        "if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
