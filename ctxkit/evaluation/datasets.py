"""Real data sets in one shape: documents, questions, and what answers them.

They are read from the evaluation data folder (`$CTXKIT_DATA`); each loader raises `ConfigError` when its files are
not there. Nothing here is cached: a loader reads its files once and returns plain, immutable values.
"""

from __future__ import annotations

import ast
import csv
import gzip
import io
import json
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ctxkit.documents import Document, Span, document_id
from ctxkit.errors import ConfigError

__all__ = [
    "LOADERS",
    "RetrievalSet",
    "chunking_eval",
    "cmrc2018",
    "load",
    "multihop",
    "scifact",
    "xquad",
]


@dataclass(frozen=True, slots=True)
class RetrievalSet:
    """Documents, queries and judgements.

    Args:
        queries: text by query id, in the order of the source.
        relevant: for each query id, the grade of each relevant document id.
        excerpts: for each query id, the gold spans by document id; empty where whole documents are judged.
    """

    name: str
    documents: tuple[Document, ...]
    queries: Mapping[str, str]
    relevant: Mapping[str, Mapping[str, int]]
    excerpts: Mapping[str, Mapping[str, tuple[Span, ...]]] = field(default_factory=dict)


def scifact(data: Path) -> RetrievalSet:
    """SciFact as BEIR judges it: 5,183 abstracts, 300 claims, 339 judgements."""
    folder = data / "beir_scifact"
    with zipfile.ZipFile(_existing(folder / "scifact.zip")) as archive:
        table = archive.read("corpus_train.csv").decode("utf-8")
    documents = []
    for row in csv.DictReader(io.StringIO(table)):
        # The abstract is written as a list of quoted sentences, one a line, without commas between them.
        sentences = [ast.literal_eval(line.strip()) for line in row["abstract"].strip()[1:-1].split("\n")]
        documents.append(
            Document(id=row["doc_id"], text=" ".join(sentences), source=f"scifact/{row['doc_id']}", title=row["title"])
        )
    queries = {}
    topics = gzip.decompress(_existing(folder / "topics.beir-v1.0.0-scifact.test.tsv.gz").read_bytes())
    for line in topics.decode("utf-8").splitlines():
        identifier, text = line.split("\t", 1)
        queries[identifier] = text
    relevant: dict[str, dict[str, int]] = {}
    for line in _existing(folder / "qrels.beir-v1.0.0-scifact.test.txt").read_text("utf-8").splitlines():
        query, _, document, grade = line.split()
        relevant.setdefault(query, {})[document] = int(grade)
    return RetrievalSet("scifact", tuple(documents), queries, relevant)


def cmrc2018(data: Path) -> RetrievalSet:
    """CMRC 2018, trial split: Chinese paragraphs; a question's relevant document is the paragraph it was asked of."""
    return _squad("cmrc2018", _json(data / "cmrc2018" / "cmrc2018_trial.json.gz"))


def xquad(data: Path, language: str = "en") -> RetrievalSet:
    """XQuAD: 240 paragraphs and 1,190 questions, parallel in English (`en`) and Chinese (`zh`)."""
    return _squad(f"xquad_{language}", _json(data / "xquad" / f"xquad.{language}.json.gz"))


def multihop(data: Path, name: str) -> RetrievalSet:
    """`musique`, `hotpotqa` or `2wiki`: the paragraphs of 100 questions in one pool; relevant are the supporting ones.

    Equal paragraphs of several questions are one document. Questions without paragraphs are left out.
    """
    documents: dict[str, Document] = {}
    queries: dict[str, str] = {}
    relevant: dict[str, dict[str, int]] = {}
    for row in _lines(data / "multihop" / f"{name}.jsonl.gz"):
        identifier = row.get("_id") or row["id"]
        support = {}
        for title, text, supporting in _paragraphs(row):
            key = document_id(f"{title}\n{text}")
            documents.setdefault(key, Document(id=key, text=text, source=f"{name}/{key}", title=title))
            if supporting:
                support[key] = 1
        if support:
            queries[identifier] = row["question"]
            relevant[identifier] = support
    return RetrievalSet(name, tuple(documents.values()), queries, relevant)


def chunking_eval(data: Path) -> RetrievalSet:
    """Chroma's chunking evaluation: 5 corpora, 472 questions with exact gold excerpts.

    Source: github.com/brandonstarxel/chunking_evaluation; "Evaluating Chunking Strategies for Retrieval", 2024.
    """
    folder = data / "chunking_eval"
    documents = []
    for name in ("chatlogs", "finance", "pubmed", "state_of_the_union", "wikitexts"):
        plain, packed = folder / "corpora" / f"{name}.md", folder / "corpora" / f"{name}.md.gz"
        raw = plain.read_bytes() if plain.is_file() else gzip.decompress(_existing(packed).read_bytes())
        documents.append(Document(id=name, text=raw.decode("utf-8"), source=f"{name}.md"))
    queries: dict[str, str] = {}
    relevant: dict[str, dict[str, int]] = {}
    excerpts: dict[str, dict[str, tuple[Span, ...]]] = {}
    table = _existing(folder / "questions_df.csv").read_text("utf-8")
    for number, row in enumerate(csv.DictReader(io.StringIO(table))):
        identifier = str(number)
        spans = [Span(item["start_index"], item["end_index"]) for item in json.loads(row["references"])]
        queries[identifier] = row["question"]
        relevant[identifier] = {row["corpus_id"]: 1}
        excerpts[identifier] = {row["corpus_id"]: tuple(spans)}
    return RetrievalSet("chunking_eval", tuple(documents), queries, relevant, excerpts)


LOADERS: Mapping[str, Callable[[Path], RetrievalSet]] = {
    "scifact": scifact,
    "cmrc2018": cmrc2018,
    "xquad_en": lambda data: xquad(data, "en"),
    "xquad_zh": lambda data: xquad(data, "zh"),
    "musique": lambda data: multihop(data, "musique"),
    "hotpotqa": lambda data: multihop(data, "hotpotqa"),
    "2wiki": lambda data: multihop(data, "2wiki"),
    "chunking_eval": chunking_eval,
}
"""The retrieval sets by name."""


def load(data: Path, name: str) -> RetrievalSet:
    """The retrieval set of that name. Raises `ConfigError` for an unknown name or missing files."""
    if name not in LOADERS:
        raise ConfigError("there is no data set of this name", subject=name, remedy=f"Known: {', '.join(LOADERS)}.")
    return LOADERS[name](data)


def _squad(name: str, content: Mapping[str, Any]) -> RetrievalSet:
    documents: dict[str, Document] = {}
    queries: dict[str, str] = {}
    relevant: dict[str, dict[str, int]] = {}
    for article in content["data"]:
        for paragraph in article["paragraphs"]:
            text = paragraph["context"]
            key = document_id(text)
            documents.setdefault(key, Document(id=key, text=text, source=f"{name}/{key}"))
            for question in paragraph["qas"]:
                queries[question["id"]] = question["question"]
                relevant[question["id"]] = {key: 1}
    return RetrievalSet(name, tuple(documents.values()), queries, relevant)


def _paragraphs(row: Mapping[str, Any]) -> Iterator[tuple[str, str, bool]]:
    if "paragraphs" in row:
        for paragraph in row["paragraphs"]:
            yield paragraph["title"], paragraph["paragraph_text"], bool(paragraph["is_supporting"])
        return
    titles = {fact[0] for fact in row.get("supporting_facts") or ()}
    for title, sentences in row.get("context") or ():
        yield title, _joined(sentences), title in titles


def _joined(sentences: Sequence[str]) -> str:
    return " ".join(sentence.strip() for sentence in sentences)


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise ConfigError("the data file is not here", subject=str(path), remedy="Set CTXKIT_DATA to the data folder.")
    return path


def _json(path: Path) -> Any:
    return json.loads(gzip.decompress(_existing(path).read_bytes()))


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    for line in gzip.decompress(_existing(path).read_bytes()).decode("utf-8").splitlines():
        yield json.loads(line)
