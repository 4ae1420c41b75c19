"""A client's file put through what ``dag-acfl try`` does with it, in one process: the frameworks load for seconds."""

from pathlib import Path

import pytest

from dag_acfl.__main__ import main
from dag_acfl.trial.baselines import baseline, common_figure, world_of
from fl_simulator.training.sites import load_sites
from ledger_server.app import create_app
from ledger_server.settings import load_settings
from tests.live import run_app

EXAMPLES = Path(__file__).parents[1] / "examples"


def last_line_of_site_0(file: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What site 0 says of its second update, when sites 1, which is unlike it, and 2, which is like it, have published.

    Before that, sites 0 and 1 are trained by FedAvg, as a trial does.
    """
    sites = load_sites(file, 2)
    assert common_figure(sites, file=file) == "accuracy"
    baseline(world_of(sites, epochs=1), "fedavg", rounds=1)

    data = str(folder / "ledger")
    assert main(["ledger", "init", "--name", "pilot", "--client", str(file), "--data-dir", data]) == 0
    settings = load_settings(data_dir=folder / "ledger")
    with run_app(create_app(settings), settings) as live:
        for site in (0, 1, 2, 0):
            client = ["client", "run", str(file), "--set", f"site={site}", "--state", str(folder / f"site-{site}")]
            assert main([*client, "--server", live.url, "--transactions", "1"]) == 0
    *_, update, _ = capsys.readouterr().out.splitlines()
    return update
