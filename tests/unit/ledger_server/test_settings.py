import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from sqlalchemy.engine import make_url

from fl_core.dag.signature import public_key_of
from fl_core.errors import ParameterError
from ledger_server.peers import parse_peers
from ledger_server.settings import Settings, describe, load_settings
from tests.builders import key_from_seed

DOCUMENTED = re.findall(
    r"^\| `\w+` \| `(DAG_ACFL_\w+)` \|",
    (Path(__file__).parents[3] / "docs/settings.md").read_text("utf-8"),
    re.MULTILINE,
)
PEERS = " ".join(f"{n}=http://{n}:8900#{public_key_of(key_from_seed(seed))}" for seed, n in ((1, "a"), (2, "b")))
AS_DOCUMENTED: dict[str, tuple[str, object]] = {
    "DATA_DIR": ("/var/lib/dag-acfl", Path("/var/lib/dag-acfl")),
    "SERVER_KEY": ("/run/secrets/server-key.pem", Path("/run/secrets/server-key.pem")),
    "DATABASE_URL": ("postgresql+psycopg://u:p%20w@db/ledger", SecretStr("postgresql+psycopg://u:p%20w@db/ledger")),
    "HOST": ("0.0.0.0", "0.0.0.0"),
    "PUBLIC": ("true", True),
    "PORT": ("8901", 8901),
    "LOG_LEVEL": ("warning", "warning"),
    "WORKERS": ("2", 2),
    "WORKER_THREADS": ("4", 4),
    "CONSOLE_ENABLED": ("false", False),
    "DOCS_ENABLED": ("false", False),
    "MIN_FREE_BYTES": ("1000000000", 1_000_000_000),
    "DRAIN_DELAY_S": ("20", 20),
    "DRAIN_S": ("30", 30),
    "TRUSTED_PROXIES": ("127.0.0.1, 10.0.0.0/8 ::1", ("127.0.0.1", "10.0.0.0/8", "::1")),
    "CORS_ORIGINS": (
        "https://app.example.org, http://localhost:3000",
        ("https://app.example.org", "http://localhost:3000"),
    ),
    "PEERS": (PEERS, parse_peers(PEERS)),
    "OVERLAY": ("small-world", "small-world"),
    "PEERS_CODED": ("yes", True),
    "PEERS_CA_FILE": ("/etc/ssl/ca.pem", Path("/etc/ssl/ca.pem")),
    "HTTP__TIMEOUT_S": ("2.5", 2.5),
    "HTTP__MIN_BYTES_PER_S": ("1000", 1000),
    "HTTP__KEEP_ALIVE_S": ("50", 50),
    "HTTP__MAX_CONNECTIONS": ("900", 900),
    "HTTP__MAX_CONCURRENT_REQUESTS": ("64", 64),
    "HTTP__MAX_BYTES_IN_FLIGHT": ("1000000", 1_000_000),
    "TLS__CERTIFICATE": ("chain.pem", Path("chain.pem")),
    "TLS__KEY": ("key.pem", Path("key.pem")),
    "CACHE__MODEL_BYTES": ("0", 0),
    "BLOBS__STORE": ("directory", "directory"),
    "BLOBS__S3_URL": ("s3://ledger-models/hospital-a", "s3://ledger-models/hospital-a"),
    "BLOBS__S3_ENDPOINT": ("https://s3.hospital-a.example", "https://s3.hospital-a.example"),
    "BLOBS__S3_REGION": ("eu-central-1", "eu-central-1"),
    "BLOBS__S3_ALLOW_HTTP": ("yes", True),
    "BLOBS__S3_SHARED": ("on", True),
    "BLOBS__REDIRECT": ("on", True),
    "PRUNE__KEEP_DAYS": ("200", 200),
    "PRUNE__PACK_AFTER_HOURS": ("24", 24),
    "PRUNE__EVERY_S": ("60", 60.0),
    "QUOTA__AUTHOR_UPDATES": ("60", 60),
    "QUOTA__TOKEN_UPDATES": ("0", 0),
    "AUTH__REQUIRED_FOR": ("reads,writes,metrics", ("reads", "writes", "metrics")),
}
"""A value of each documented variable as a person would write it, and what it means."""
GO_TOGETHER = {"DAG_ACFL_TLS__CERTIFICATE": "DAG_ACFL_TLS__KEY", "DAG_ACFL_TLS__KEY": "DAG_ACFL_TLS__CERTIFICATE"}


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


def value_of(settings: Settings, variable: str) -> Any:
    value: Any = settings
    for part in variable.removeprefix("DAG_ACFL_").lower().split("__"):
        value = getattr(value, part)
    return value


@pytest.mark.parametrize("source", ["environment", ".env"])
@pytest.mark.parametrize("variable", DOCUMENTED)
def test_every_documented_variable_can_be_set(
    variable: str, source: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, expected = AS_DOCUMENTED[variable.removeprefix("DAG_ACFL_")]
    assert value_of(load_settings(), variable) != expected, "a value that would show"
    given = {GO_TOGETHER.get(variable, variable): "file.pem", variable: text}
    if source == ".env":
        (folder / ".env").write_text("".join(f"{name}={value}\n" for name, value in given.items()))
    else:
        for name, value in given.items():
            monkeypatch.setenv(name, value)
    assert value_of(load_settings(), variable) == expected


def test_every_setting_is_documented() -> None:
    assert {f"DAG_ACFL_{name}" for name in AS_DOCUMENTED} == set(DOCUMENTED)


@pytest.mark.parametrize(
    ("variable", "text", "advice"),
    [
        ("TRUSTED_PROXIES", '["127.0.0.1"]', "write them with spaces or commas between, such as 127.0.0.1 10.0.0.0/8"),
        ("TRUSTED_PROXIES", "10.1.0.0/8", "write them with spaces or commas between, such as 127.0.0.1 10.0.0.0/8"),
        ("TRUSTED_PROXIES", "proxy.example", "'proxy.example' is no address or network"),
        ("CORS_ORIGINS", "*", "'*' is no origin; write each as a browser does"),
        ("CORS_ORIGINS", "https://app.example.org/", "no path, no usual port"),
        ("CORS_ORIGINS", "https://app.example.org:443", "no path, no usual port"),
        ("PEERS", "second.example", "write NAME=URL#KEY, as `dag-acfl keys peer` prints it"),
        ("AUTH__REQUIRED_FOR", "everything", "'reads', 'writes' or 'metrics'"),
        ("PUBLIC", "perhaps", "write true or false"),
        ("PORT", "80a", "write a whole number in digits"),
        ("HTTP__TIMEOUT_S", "10 s", "write a number such as 10 or 2.5"),
        ("HTTP__TIMEOUTS", "10", "[http] has timeout_s, min_bytes_per_s"),
        ("HTTP", "10", "set each by itself, such as DAG_ACFL_HTTP__TIMEOUT_S"),
        ("HTTP", "{timeout_s", "set each by itself, such as DAG_ACFL_HTTP__TIMEOUT_S"),
        ("LOG_LEVEL", "loud", "'debug', 'info', 'warning' or 'error'"),
        ("BLOBS__S3_URL", "bucket", "s3://bucket/prefix"),
        ("DATABASE_URL", "mysql://h/db", "sqlite:// or postgresql+psycopg://"),
    ],
)
def test_a_wrong_value_is_answered_with_how_to_write_it(
    variable: str, text: str, advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"DAG_ACFL_{variable}", text)
    with pytest.raises(ParameterError) as refused:
        load_settings()
    assert f"(DAG_ACFL_{variable})" in str(refused.value)
    assert advice in str(refused.value)
    assert "\n" not in str(refused.value)


def test_an_environment_file_that_is_no_text_is_one_line(folder: Path) -> None:
    (folder / ".env").write_bytes(b"DAG_ACFL_PORT=\xff")
    with pytest.raises(ParameterError, match=r"^\.env is not UTF-8 text$"):
        load_settings()


@pytest.mark.parametrize(
    ("flags", "asked"),
    [
        ({}, set()),
        ({"host": "localhost"}, set()),
        ({"host": "127.0.0.5"}, set()),
        ({"host": "::1"}, set()),
        ({"host": "0.0.0.0"}, {"reads", "writes"}),
        ({"host": "::"}, {"reads", "writes"}),
        ({"host": "192.0.2.7"}, {"reads", "writes"}),
        ({"host": "ledger.example"}, {"reads", "writes"}),
        ({"trusted_proxies": ("127.0.0.1",)}, {"reads", "writes"}),
        ({"host": "0.0.0.0", "public": True}, set()),
        ({"host": "0.0.0.0", "public": True, "auth": {"required_for": ("writes",)}}, {"writes"}),
        ({"host": "0.0.0.0", "auth": {"required_for": ("metrics",)}}, {"reads", "writes", "metrics"}),
        ({"auth": {"required_for": ("writes",)}}, {"writes"}),
    ],
)
def test_beyond_this_machine_reading_and_writing_ask_for_tokens_unless_it_is_public(
    flags: dict[str, object], asked: set[str]
) -> None:
    assert load_settings(**flags).needs_token_for == asked


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


@pytest.mark.parametrize("where", ["environment", ".env"])
def test_one_underscore_for_two_is_refused_and_named(folder: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    if where == ".env":
        (folder / ".env").write_text("DAG_ACFL_AUTH_REQUIRED_FOR=metrics\n")
    else:
        monkeypatch.setenv("DAG_ACFL_AUTH_REQUIRED_FOR", "metrics")
    with pytest.raises(
        ParameterError, match=r"auth\.required_for \(DAG_ACFL_AUTH__REQUIRED_FOR\): has two underscores"
    ):
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
