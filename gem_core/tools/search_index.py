"""Local retrieval: a corpus from a JSONL file, ranked by BM25 or by dense vectors."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Protocol

#: ``(document, score)``, best first.
Hits = list[tuple["Document", float]]


@dataclass(frozen=True)
class Document:
    id: str
    #: Title, line break, text.
    contents: str


class Index(Protocol):
    """Ranks documents for queries."""

    def search(self, queries: Sequence[str], k: int) -> list[Hits]:
        """Returns at most ``k`` hits for each query."""


def load_corpus(path: str | Path | None = None) -> list[Document]:
    """Reads documents, one JSON object a line: ``id`` (optional) and ``contents``, or ``title`` and ``text``.

    Args:
        path: The file; None reads the small sample that ships with the package.

    Raises:
        ValueError: a line that is not such an object, or no document at all; the message names the line.
    """
    if path is None:
        text = (resources.files("gem_core") / "data" / "search_corpus.jsonl").read_text("utf-8")
    else:
        try:
            text = Path(path).read_text("utf-8")
        except OSError as e:
            raise ValueError(f"the corpus {str(path)!r} cannot be read: {e.strerror}") from e
    documents: list[Document] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as e:
            raise ValueError(f"{path or 'the sample corpus'}, line {number}: not JSON: {e}") from None
        documents.append(_document(row, len(documents), f"{path or 'the sample corpus'}, line {number}"))
    if not documents:
        raise ValueError(f"the corpus {str(path)!r} holds no document")
    return documents


def _document(row: Any, position: int, where: str) -> Document:
    if isinstance(row, dict):
        identity = str(row.get("id", position))
        if isinstance(row.get("contents"), str):
            return Document(identity, row["contents"])
        if isinstance(row.get("text"), str):
            return Document(identity, f"{row.get('title') or identity}\n{row['text']}")
    raise ValueError(f"{where}: expected an object with 'contents', or with 'title' and 'text'")


class BM25Index:
    """BM25 with the package ``bm25s``; documents that share no word with the query are no hits.

    Args:
        documents: The corpus.
        stopwords: A language of bm25s (``"en"``), a list of words, or None.

    Raises:
        ImportError: bm25s is missing.
    """

    def __init__(self, documents: Sequence[Document], stopwords: str | list[str] | None = "en") -> None:
        try:
            bm25s = importlib.import_module("bm25s")
        except ModuleNotFoundError as e:
            raise ImportError("BM25 needs the package 'bm25s': pip install 'gem-adapters[search]'", name=e.name) from e
        if not documents:
            raise ValueError("the corpus is empty")
        self.documents = list(documents)
        self._stopwords = stopwords
        self._bm25s = bm25s
        self._ranker = bm25s.BM25()
        self._ranker.index(self._tokens([d.contents for d in self.documents]), show_progress=False)

    def search(self, queries: Sequence[str], k: int) -> list[Hits]:
        if not queries:
            return []
        k = min(k, len(self.documents))
        found, scores = self._ranker.retrieve(self._tokens(queries), k=k, show_progress=False)
        return [
            [(self.documents[int(i)], float(s)) for i, s in zip(row, marks, strict=True) if s > 0]
            for row, marks in zip(found, scores, strict=True)
        ]

    def _tokens(self, texts: Sequence[str]) -> Any:
        tokens = self._bm25s.tokenize(
            list(texts),
            token_pattern=r"(?u)\b\w+\b",  # bm25s's own leaves out words of one letter
            stopwords=self._stopwords,
            return_ids=False,
            show_progress=False,
        )
        # A document or query of stop words only still needs an entry of its own.
        return [row or [""] for row in tokens]


class DenseIndex:
    """Cosine similarity of sentence embeddings.

    Args:
        documents: The corpus.
        embed: Maps a list of n texts to an array of shape (n, d); any sentence-embedding model's ``encode``.
        batch_size: Documents embedded at once.
    """

    def __init__(self, documents: Sequence[Document], embed: Callable[[list[str]], Any], batch_size: int = 64) -> None:
        import numpy as np

        if not documents:
            raise ValueError("the corpus is empty")
        self.documents = list(documents)
        self._embed = embed
        texts = [d.contents for d in self.documents]
        parts = [self._vectors(texts[i : i + batch_size]) for i in range(0, len(texts), batch_size)]
        self._matrix = np.concatenate(parts)

    def search(self, queries: Sequence[str], k: int) -> list[Hits]:
        import numpy as np

        if not queries:
            return []
        scores = self._vectors(list(queries)) @ self._matrix.T
        order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        return [
            [(self.documents[i], float(row[i])) for i in best.tolist()] for row, best in zip(scores, order, strict=True)
        ]

    def _vectors(self, texts: list[str]) -> Any:
        import numpy as np

        vectors = np.asarray(self._embed(texts), dtype=np.float32)
        if vectors.ndim != 2 or len(vectors) != len(texts):
            raise ValueError(f"embed gave shape {vectors.shape} for {len(texts)} texts; expected ({len(texts)}, d)")
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        return vectors / np.maximum(norms, 1e-12)
