"""``dag-acfl ledger import``: a bundle becomes a server's ledger, on either database."""

from pathlib import Path

import pytest

from ledger_server.admin.bundle import write_bundle
from ledger_server.keys import create_key
from tests.integration.test_cli import refused, run
from tests.sources import sound_ledger


@pytest.mark.usefixtures("configured_database")
def test_a_bundle_becomes_a_servers_ledger_and_nothing_comes_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle, site = tmp_path / "run.dagacfl", str(tmp_path / "site")
    write_bundle(sound_ledger().source(), bundle)
    for _ in range(2):
        said = run("ledger", "import", str(bundle), "--data-dir", site, capsys=capsys)
        assert "6 transactions" in said
        assert "dag-acfl keys peer" in said, "no key of a founder is beside it"
    assert "sound: 6 transactions, 6 models" in run("ledger", "verify", site, capsys=capsys)


def test_what_is_no_whole_ledger_of_this_key_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sound, bundle = sound_ledger(), tmp_path / "run.dagacfl"
    command = ("ledger", "import", str(bundle), "--data-dir", str(tmp_path / "site"))
    write_bundle(sound.source(), bundle)
    create_key(tmp_path / "run.dagacfl.key")
    assert "is not the key of a founder" in refused(*command, capsys=capsys)
    source = sound.source()
    source.prune(sound.ann)
    write_bundle(source, bundle)
    assert "1 of its models were pruned" in refused(*command, capsys=capsys)
    del source.models[sound.source().kept[sound.bob].header.model_digest]
    write_bundle(source, bundle)
    assert "fault: model-missing" in run(*command, code=1, capsys=capsys)
