import tomllib
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from fl_core.dag.signature import public_key_of
from fl_core.errors import ParameterError
from ledger_server.settings import Settings, describe, load_settings
from tests.builders import key_from_seed


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_flag_beats_the_environment_beats_dotenv_beats_toml_beats_the_default(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert load_settings().port == 8900
    (folder / "dag-acfl.toml").write_text("port = 1\n[http]\nmax_connections = 11\n")
    assert load_settings().port == 1
    (folder / ".env").write_text("DAG_ACFL_PORT=2\n")
    assert load_settings().port == 2
    monkeypatch.setenv("DAG_ACFL_PORT", "3")
    assert load_settings().port == 3
    assert load_settings(port=4).port == 4
    assert load_settings(port=None).port == 3
    assert load_settings().http.max_connections == 11


def test_groups_are_merged_field_by_field(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "dag-acfl.toml").write_text("[http]\nmax_connections = 11\ntimeout_s = 1.5\n")
    monkeypatch.setenv("DAG_ACFL_HTTP__MAX_CONNECTIONS", "12")
    http = load_settings(http={"keep_alive_s": 3}).http
    assert (http.max_connections, http.timeout_s, http.keep_alive_s, http.min_bytes_per_s) == (12, 1.5, 3, 4096)


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ({"port": 70_000}, "DAG_ACFL_PORT"),
        ({"port": "many"}, "DAG_ACFL_PORT"),
        ({"http": {"timeout_s": -1}}, "DAG_ACFL_HTTP__TIMEOUT_S"),
        ({"http": {"timeout_s": float("nan")}}, "DAG_ACFL_HTTP__TIMEOUT_S"),
        ({"http": {"max_heders": 3}}, "DAG_ACFL_HTTP__MAX_HEDERS"),
        ({"tls": {"certificate": "cert.pem"}}, "DAG_ACFL_TLS"),
        ({"overlay": "star"}, "DAG_ACFL_OVERLAY"),
        ({"database_url": "mysql://h/db"}, "DAG_ACFL_DATABASE_URL"),
        ({"peers": ("a=http://a",)}, "DAG_ACFL_PEERS"),
        ({"peers": 7}, "DAG_ACFL_PEERS"),
        ({"auth": {"required_for": ("everything",)}}, "DAG_ACFL_AUTH__REQUIRED_FOR"),
        ({"prot": 1}, "prot"),
    ],
)
def test_a_wrong_value_is_one_line_that_names_the_setting(flags: dict[str, object], named: str) -> None:
    with pytest.raises(ParameterError) as refused:
        load_settings(**flags)
    assert named in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "named"),
    [("port = 'x'", "DAG_ACFL_PORT"), ("prot = 1", "prot"), ("port = ", "dag-acfl.toml"), ("\xff", "dag-acfl.toml")],
)
def test_a_wrong_file_is_one_line_too(folder: Path, text: str, named: str) -> None:
    (folder / "dag-acfl.toml").write_bytes(text.encode("latin-1"))
    with pytest.raises(ParameterError, match=named) as refused:
        load_settings()
    assert "\n" not in str(refused.value)


def test_a_wrong_environment_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAG_ACFL_PORT", "many")
    with pytest.raises(ParameterError, match="DAG_ACFL_PORT"):
        load_settings()
    monkeypatch.setenv("DAG_ACFL_PORT", "1")
    monkeypatch.setenv("DAG_ACFL_HTTP", "{not json")
    with pytest.raises(ParameterError, match="http"):
        load_settings()


def test_lists_are_words_in_the_environment(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [f"{name}=http://{name}:8900#{public_key_of(key_from_seed(seed))}" for seed, name in ((1, "a"), (2, "b"))]
    monkeypatch.setenv("DAG_ACFL_PEERS", " ".join(entries))
    monkeypatch.setenv("DAG_ACFL_AUTH__REQUIRED_FOR", "reads, metrics")
    settings = load_settings()
    assert [str(peer) for peer in settings.peers] == entries
    assert settings.auth.required_for == ("reads", "metrics")
    (folder / "dag-acfl.toml").write_text(describe(settings))
    monkeypatch.delenv("DAG_ACFL_PEERS")
    monkeypatch.delenv("DAG_ACFL_AUTH__REQUIRED_FOR")
    assert load_settings() == settings


def test_variables_of_others_are_nobody_s_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / ".env").write_text("DAG_ACFL_SERVER=http://a\nPOSTGRES_PASSWORD=x\n")
    monkeypatch.setenv("DAG_ACFL_CLIENT_DIR", "y")
    assert load_settings().port == 8900


def test_a_password_is_shown_nowhere_and_kept_for_the_engine() -> None:
    url = "postgresql+psycopg://fl:hunter2@db:5432/ledger"
    settings = load_settings(database_url=url)
    assert settings.resolved_database_url == url
    for shown in (repr(settings), str(settings), describe(settings)):
        assert "hunter2" not in shown
    with pytest.raises(ParameterError) as refused:
        load_settings(database_url="mysql://fl:hunter2@db/ledger")
    assert "hunter2" not in str(refused.value)


def test_the_default_database_lies_in_the_data_folder() -> None:
    assert load_settings(data_dir="here").resolved_database_url == "sqlite:///here/ledger.sqlite3"
    odd = load_settings(data_dir="50% of #1?").resolved_database_url
    assert make_url(odd).database == "50% of #1?/ledger.sqlite3"


def test_described_settings_are_a_file_that_gives_the_same_settings(folder: Path) -> None:
    settings = load_settings(
        port=8901, data_dir='a "b"\\c\té', trusted_proxies=("10.0.0.0/8", "::1"), http={"timeout_s": 2.5}
    )
    (folder / "dag-acfl.toml").write_text(describe(settings), encoding="utf-8")
    again = load_settings()
    assert again == settings
    assert tomllib.loads(describe(settings))["port"] == 8901


def test_every_setting_says_what_it_is() -> None:
    for name, field in Settings.model_fields.items():
        assert field.description, name
        group = field.annotation
        for inner, sub in getattr(group, "model_fields", {}).items():
            assert sub.description, f"{name}.{inner}"
