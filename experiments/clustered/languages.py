"""Character models of six languages: clients are documents, clusters are languages nobody was told.

    sudo apt-get install fortunes-de fortunes-es fortunes-it wdutch wfrench wswedish

``texts`` is a data set of documents: fortunes, each file one (German, Spanish, Italian), and words drawn from word
lists (Dutch, French, Swedish). Letters lose their accents, everything else is a space. A sample is four characters,
each a row of 27 places with a one, and its label is the character that follows. ``documents`` gives each client the
beginning of one document; it is tested on the last part of that.
"""

import unicodedata
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fl_core.parameters import parameter
from fl_simulator.data.errors import DataSetMissingError
from fl_simulator.data.image_data import ImageData
from fl_simulator.engine.population import Share
from fl_simulator.errors import PartitionError

FORTUNES: Final = Path("/usr/share/games/fortunes")
WORD_LISTS: Final = Path("/usr/share/dict")
LANGUAGES: Final = {"fortunes": ("de", "es", "it"), "words": ("dutch", "french", "swedish")}
PACKAGES: Final = "fortunes-de fortunes-es fortunes-it wdutch wfrench wswedish"
ALPHABET: Final = " abcdefghijklmnopqrstuvwxyz"
CONTEXT: Final = 4
LENGTH: Final = 2000
"""Samples of a document; a shorter one is left out."""
LISTED_DOCUMENTS: Final = 20
"""Documents that are drawn from each word list."""


@dataclass(frozen=True, slots=True)
class Document:
    """Its source and its language, and characters in ``ALPHABET``, at least ``LENGTH + CONTEXT``."""

    source: str
    language: str
    text: str


def plain(text: str) -> str:
    """Small letters without accents, and single spaces for everything else."""
    letters = unicodedata.normalize("NFKD", text.casefold())
    spaced = "".join(each if each in ALPHABET else " " for each in letters if not unicodedata.combining(each))
    return " ".join(spaced.split())


@cache
def corpus() -> tuple[Document, ...]:
    """All documents, by source, language and file."""
    if missing := [each for each in _files() if not each.exists()]:
        raise DataSetMissingError(f"languages: {missing[0]} is not there; get it with `apt-get install {PACKAGES}`")
    enough = LENGTH + CONTEXT
    found = [
        Document("fortunes", language, text)
        for language in LANGUAGES["fortunes"]
        for file in sorted((FORTUNES / language).iterdir())
        if file.is_file() and file.suffix not in (".dat", ".u8") and len(text := plain(_read(file))) >= enough
    ]
    for number, language in enumerate(LANGUAGES["words"]):
        words, rng = plain(_read(WORD_LISTS / language)).split(), np.random.default_rng(number)
        for _ in range(LISTED_DOCUMENTS):
            drawn = " ".join(words[each] for each in rng.integers(len(words), size=enough))  # none is without a letter
            found.append(Document("words", language, drawn))
    return tuple(found)


def _files() -> list[Path]:
    return [FORTUNES / each for each in LANGUAGES["fortunes"]] + [WORD_LISTS / each for each in LANGUAGES["words"]]


def _read(file: Path) -> str:
    content = file.read_bytes()
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return content.decode("latin-1")  # Debian's Swedish list


def texts() -> ImageData:
    """``LENGTH`` samples of each document of ``corpus``, one document after another; no test part."""
    windows = [
        np.lib.stride_tricks.sliding_window_view(_indices(each.text[: LENGTH + CONTEXT]), CONTEXT + 1)
        for each in corpus()
    ]
    characters = np.concatenate(windows)
    images = np.eye(len(ALPHABET), dtype=np.uint8)[characters[:, :CONTEXT]] * np.uint8(255)
    labels = characters[:, CONTEXT].astype(np.int64)
    return ImageData(images, labels, images[:0], labels[:0])


def _indices(text: str) -> NDArray[np.int64]:
    return np.array([ALPHABET.index(each) for each in text])


@dataclass(frozen=True, slots=True)
class DocumentsParams:
    """Whose documents, and how much of each."""

    source: str = parameter("fortunes", choices=tuple(LANGUAGES), doc="Fortunes' running text, or lists of words.")
    clients: int = parameter(10, at_least=1, doc="Documents of each language.")
    samples: int = parameter(LENGTH, at_least=10, at_most=LENGTH, doc="Characters of each, to train and test on.")


def documents(
    params: DocumentsParams, labels: NDArray[np.int64], *, train_fraction: float, rng: np.random.Generator
) -> list[Share]:
    """Clients of the first language come first; each document's end, which no training reaches into, is tested on."""
    if len(labels) != len(corpus()) * LENGTH:
        raise PartitionError(f'documents are of the data set "{__name__}:texts" alone')
    middle = round(params.samples * train_fraction)
    numbered = [(each.language, place) for place, each in enumerate(corpus()) if each.source == params.source]
    shares = []
    for cluster, (language, group) in enumerate(groupby(numbered, key=lambda each: each[0])):
        places = [place for _, place in group]
        if len(places) < params.clients:
            raise PartitionError(f"there are {len(places)} documents in {language}, not {params.clients}")
        for place in rng.choice(places, params.clients, replace=False):
            start = int(place) * LENGTH
            train = np.arange(start, start + middle - CONTEXT)
            shares.append(Share(train, np.arange(start + middle, start + params.samples), cluster))
    return shares
