"""Documents of several languages: what of a text is kept, and what a client trains and is tested on."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from experiments.clustered import languages
from fl_core.parameters import read_parameters
from fl_simulator.data.errors import DataSetMissingError
from fl_simulator.engine.population import Share
from fl_simulator.errors import PartitionError


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Two documents of each language, of 30 samples each; a third one is too short."""
    for language in languages.LANGUAGES["fortunes"]:
        folder = tmp_path / "fortunes" / language
        folder.mkdir(parents=True)
        for name in ("one", "two"):
            (folder / name).write_text(f"Ähm, {name}! " * 10, "utf-8")
        (folder / "short").write_text("abc", "utf-8")
        (folder / "one.dat").write_bytes(bytes(200))
    (tmp_path / "dict").mkdir()
    for language in languages.LANGUAGES["words"]:
        (tmp_path / "dict" / language).write_bytes("åtta\nsju\n".encode("latin-1"))
    monkeypatch.setattr(languages, "FORTUNES", tmp_path / "fortunes")
    monkeypatch.setattr(languages, "WORD_LISTS", tmp_path / "dict")
    monkeypatch.setattr(languages, "LENGTH", 30)
    monkeypatch.setattr(languages, "LISTED_DOCUMENTS", 2)
    languages.corpus.cache_clear()
    yield tmp_path
    languages.corpus.cache_clear()


def shares(*, clients: int = 2, samples: int = 20, source: str = "fortunes") -> list[Share]:
    params = read_parameters(
        languages.DocumentsParams, {"clients": clients, "samples": samples, "source": source}, owner="documents"
    )
    labels = languages.texts().train_y
    return languages.documents(params, labels, train_fraction=0.8, rng=np.random.default_rng(0))


def test_accents_signs_and_capitals_are_dropped() -> None:
    assert languages.plain("Größe:  1 Ähre,\nça va?") == "grosse ahre ca va"


@pytest.mark.usefixtures("installed")
def test_a_sample_is_four_characters_and_its_label_the_next() -> None:
    data = languages.texts()
    text = languages.corpus()[0].text
    assert text.startswith("ahm one ahm one")
    assert data.train_x.shape == (12 * 30, 4, 27)
    shown = ["".join(languages.ALPHABET[place] for place in image.argmax(axis=1)) for image in data.train_x[:3]]
    assert shown == ["ahm ", "hm o", "m on"]
    assert [languages.ALPHABET[label] for label in data.train_y[:3]] == ["o", "n", "e"]
    assert data.train_x[0].sum() == 4 * 255


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("source", ["fortunes", "words"])
def test_each_client_has_a_document_and_its_end_is_not_trained_on(source: str) -> None:
    found = shares(source=source)
    assert [share.cluster for share in found] == [0, 0, 1, 1, 2, 2]
    for share in found:
        start = share.train[0]
        assert start % 30 == 0
        assert share.train.tolist() == list(range(start, start + 12)), "up to 16, less the four that a test would show"
        assert share.test.tolist() == list(range(start + 16, start + 20))
    assert len({int(share.train[0]) for share in found}) == 6


@pytest.mark.usefixtures("installed")
def test_more_clients_than_documents_are_refused() -> None:
    with pytest.raises(PartitionError, match="there are 2 documents in de, not 3"):
        shares(clients=3)


def test_a_missing_list_names_the_packages(installed: Path) -> None:
    (installed / "dict" / "french").unlink()
    with pytest.raises(DataSetMissingError, match="french is not there; get it with `apt-get install fortunes-de"):
        languages.texts()
