"""The examples whose frameworks are no dependencies of ours: ``make frameworks``, in an environment that has them."""

from pathlib import Path

import pytest

from tests.example_files import EXAMPLES, last_line_of_site_0

pytestmark = pytest.mark.filterwarnings("ignore")  # theirs


@pytest.mark.parametrize("framework", ["sklearn", "lightning", "transformers"])
def test_a_site_shares_with_the_one_that_is_like_it(
    framework: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)  # Hugging Face makes a folder
    update = last_line_of_site_0(EXAMPLES / f"{framework}_client.py", tmp_path, capsys)
    assert "average with 1 of 2 others" in update
