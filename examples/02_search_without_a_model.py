"""Ingest a folder and search it with the light core alone: lexical search, and an embedder that needs no model."""

import tempfile
from pathlib import Path

from ctxkit import ContextEngine
from ctxkit.testing import HashEmbedder

FILES = {
    "keys.md": "# Keys\n\nKeys rotate on the first of each month.\n",
    "backups.md": "# Backups\n\nA backup is taken every night at two, and kept for thirty days.\n",
    "holidays.txt": "The office is closed in the last week of the year.\n",
}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name, text in FILES.items():
            (Path(folder) / name).write_text(text, encoding="utf-8")

        for embedder in (None, HashEmbedder(dimension=256)):
            name = type(embedder).__name__ if embedder else "lexical only"
            with ContextEngine.open("sqlite://", embedder=embedder) as engine:
                report = engine.ingest(folder)
                print(f"{name}: {report.documents} documents, {report.chunks} chunks")
                again = engine.ingest(folder)
                print(f"  the same folder again: {again.unchanged} unchanged, {again.chunks} chunks written")
                best = engine.search("how often do keys rotate?", k=2)
                for candidate in best:
                    print(f"  {candidate.score:.2f}  {' '.join(candidate.text.split())}")
                assert "rotate" in best[0].text


if __name__ == "__main__":
    main()
