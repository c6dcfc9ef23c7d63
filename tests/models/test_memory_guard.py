"""A local model stays within the memory that there is, and says why it ran out."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ctxkit.errors import MemoryBudgetError, ModelError
from ctxkit.models import LocalModel
from ctxkit.models.memory_guard import MemoryGuard, ran_out
from ctxkit.prompts import CompletionOptions, Prompt
from tests.tiny_models import write_tiny_llama

torch = pytest.importorskip("torch")
pytest.importorskip("psutil")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_llama(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def model(folder: Path) -> LocalModel:
    return LocalModel(folder)


def prompt_of(model: LocalModel, text: str) -> Prompt:
    from ctxkit.engine import ContextEngine

    with ContextEngine.open("sqlite://", embedder=None) as engine:
        return engine.assemble(text, model=model)


def allocate(*_: Any) -> None:
    torch.empty(1 << 50)


class TestGuard:
    def test_what_fits_is_read_in_the_usual_steps(self, model: LocalModel) -> None:
        reading = MemoryGuard(model.weights, "tiny").check(500)
        assert reading.step == 256
        assert reading.plan is not None and reading.plan.context == 500

    def test_what_nothing_holds_is_refused_with_the_numbers(self, model: LocalModel) -> None:
        with pytest.raises(MemoryBudgetError, match="are free") as caught:
            MemoryGuard(model.weights, "tiny").check(10**12)
        assert caught.value.needed > caught.value.free > 0
        assert caught.value.report is not None and caught.value.report["plan"]["context"] == 10**12
        assert "kv plan" in caught.value.remedy

    @pytest.mark.skipif(sys.platform == "win32", reason="there are no limits of an address space")
    def test_a_tight_memory_is_read_in_smaller_steps(self, folder: Path) -> None:
        code = """
import resource, psutil, transformers, torch
from ctxkit.errors import MemoryBudgetError
from ctxkit.models.memory_guard import MemoryGuard
config = transformers.LlamaConfig(hidden_size=64, intermediate_size=100_000, num_hidden_layers=1, num_attention_heads=2)
class Weights:
    device, dtype = torch.device("cpu"), torch.float32
Weights.config = config
guard = MemoryGuard(Weights, "wide")
def limited(room):
    limit = psutil.Process().memory_info().vms + room
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
    try:
        return guard.check(300).step
    except MemoryBudgetError:
        return 0
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
print([limited(room * 10**6) for room in (1000, 200, 100, 10)])
"""
        done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip() == "[256, 128, 64, 0]"


class TestAfterwards:
    def test_a_real_failure_is_explained(self, model: LocalModel) -> None:
        guard = MemoryGuard(model.weights, "tiny")
        reading = guard.check(100)
        with pytest.raises(RuntimeError) as caught:
            allocate()
        assert ran_out(caught.value)
        explained = guard.explain(caught.value, reading, phase="decode")
        assert explained is not None and explained.report is not None
        assert explained.report["cause"] == "cache growth"
        assert "memory ran out in decode; cause: cache growth" in str(explained)

    def test_another_failure_is_not(self, model: LocalModel) -> None:
        guard = MemoryGuard(model.weights, "tiny")
        assert guard.explain(RuntimeError("shapes differ"), guard.check(10), phase="prefill") is None

    @pytest.mark.parametrize("error", [MemoryError(), RuntimeError("CUDA out of memory. Tried to allocate 2 GiB")])
    def test_kinds_of_errors(self, error: BaseException) -> None:
        assert ran_out(error)

    def test_the_model_raises_it_with_its_phase(self, model: LocalModel) -> None:
        prompt = prompt_of(model, "the user asks")
        options = CompletionOptions(max_tokens=4)
        assert model.complete(prompt, options).usage.completion_tokens <= 4
        handle = model.weights.register_forward_pre_hook(allocate)
        try:
            with pytest.raises(MemoryBudgetError, match="memory ran out in prefill") as caught:
                model.complete(prompt, options)
        finally:
            handle.remove()
        assert isinstance(caught.value, ModelError)
        assert model.complete(prompt, options).usage.completion_tokens <= 4, "the model can be used again"
