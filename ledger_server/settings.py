"""Settings of a ledger server: one table, read once, handed down.

A value is looked for in this order: a flag of the command, the environment (``DAG_ACFL_PORT``; groups with a
double underscore: ``DAG_ACFL_HTTP__TIMEOUT_S``), ``.env``, ``dag-acfl.toml``, the default. Nothing else in
the server reads the environment. What members of a ledger must agree on is not here but in genesis.

    settings = load_settings(port=8901)
    settings.http.timeout_s
"""

import re
from collections.abc import Mapping
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import ErrorDetails
from pydantic_settings import (
    BaseSettings,
    DotEnvSettingsSource,
    EnvSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    TomlConfigSettingsSource,
)
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from fl_core.errors import ParameterError
from ledger_server.buckets import S3Address, parse_s3_url
from ledger_server.peers import Peer, parse_peers

ENV_PREFIX: Final = "DAG_ACFL_"
ENV_FILE: Final = ".env"
TOML_FILE: Final = "dag-acfl.toml"

MIB: Final = 1 << 20

Seconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]
Bytes = Annotated[int, Field(ge=1, le=1 << 40)]

_ORIGIN: Final = re.compile(r"(?!http:.*:80$)(?!https:.*:443$)https?://([a-z0-9.-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?")

LogLevel = Literal["debug", "info", "warning", "error"]


def _words(value: object) -> object:
    """A list that was written as one text, as in an environment variable: words between spaces or commas."""
    return tuple(value.replace(",", " ").split()) if isinstance(value, str) else value


def _networks(value: object) -> object:
    words = _words(value)
    for word in words if isinstance(words, list | tuple) else ():
        try:
            ip_network(str(word))
        except ValueError:
            shown = str(word)[:64]
            raise ValueError(
                f"{shown!r} is no address or network; write them with spaces or commas between, such as "
                "127.0.0.1 10.0.0.0/8"
            ) from None
    return words


def _origins(value: object) -> object:
    words = _words(value)
    for word in words if isinstance(words, list | tuple) else ():
        if not _ORIGIN.fullmatch(str(word)):
            shown = str(word)[:64]
            raise ValueError(
                f"{shown!r} is no origin; write each as a browser does: small letters, no path, no usual port, such as "
                "https://app.example.org or http://localhost:3000"
            )
    return words


def _peers(value: object) -> tuple[Peer, ...]:
    if not isinstance(value, str | list | tuple):
        raise ValueError("must be a list of NAME=URL#KEY")  # noqa: TRY004 -- pydantic reports a ValueError
    try:
        return parse_peers(value)
    except ParameterError as error:
        raise ValueError(str(error)) from None


Overlay = Literal["complete", "ring", "small-world"]
"""Graphs of the servers among themselves, by their names in ``ledger_server.gossip.overlay``."""


Guarded = Literal["reads", "writes", "metrics"]
"""What a token may be asked for."""


class _Group(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", frozen=True)


class HttpSettings(_Group):
    """What clients may cost; what else protects a public address is a reverse proxy's (docs/proxy.md)."""

    timeout_s: Seconds = Field(
        default=10.0,
        description="Seconds within which a request's head must have arrived, and for which a client may be waited for "
        "beyond what `min_bytes_per_s` allows; then 408.",
    )
    min_bytes_per_s: Bytes = Field(
        default=4096,
        description="Slowest mean rate at which a body must come and an answer be read, counted only while the server "
        "waits for the client.",
    )
    keep_alive_s: int = Field(
        default=75,
        ge=1,
        le=86_400,
        description="Seconds for which an idle connection is kept; longer than a proxy in front keeps its own.",
    )
    max_connections: Count = Field(
        default=800,
        description="Most open connections, TLS handshakes included; further ones are answered 503 and closed, but for "
        "16 that supervisors may use; beyond three quarters none is kept for a second request. One address has as many "
        "as are left at most: alone, half. Below `ulimit -n`.",
    )
    max_concurrent_requests: Count = Field(
        default=128,
        description="Most requests in progress, supervisors' apart; further ones are answered 503 with Retry-After. "
        "Selections fill a quarter, event streams half, fetches seven eighths, so that what is trained finds room. One "
        "caller has at most as many as are left: alone, half.",
    )
    max_bytes_in_flight: Bytes = Field(
        default=512 * MIB,
        description="Most bytes of bodies in memory; what finds no room is answered 503 with Retry-After, unless it "
        "is the only one. One caller has at most as many as are left: alone, half.",
    )


class TlsSettings(_Group):
    """TLS for the server's port; without a certificate it speaks plain HTTP."""

    certificate: Path | None = Field(default=None, description="PEM file with the certificate and its chain.")
    key: Path | None = Field(default=None, description="PEM file with the private key.")

    @model_validator(mode="after")
    def _both_or_none(self) -> "TlsSettings":
        if (self.certificate is None) != (self.key is None):
            raise ValueError("certificate and key go together; set both or neither")
        return self


class CacheSettings(_Group):
    """Memory for speed; correctness needs none of it."""

    model_bytes: int = Field(
        default=96 * MIB, ge=0, le=1 << 40, description="Memory for recently used models and aggregates, in bytes."
    )


class BlobSettings(_Group):
    """Where models lie."""

    store: Literal["database", "directory", "s3"] | None = Field(
        default=None,
        description="Where a new ledger keeps its models: `database`: in its rows; `directory`: a file each in the "
        "folder `models` of `data_dir`, faster from some megabytes on; `s3`: objects in the bucket of `blobs.s3_url`. "
        "A ledger keeps the place that it was made with. Default: that, and `database` for a new one.",
    )
    s3_url: str | None = Field(
        default=None,
        description="`s3://bucket/prefix`, one server's alone unless `s3_shared`: for models in a bucket. "
        "Credentials are AWS's own environment variables, such as `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`.",
    )
    s3_endpoint: str | None = Field(
        default=None, description="URL of an S3 service that is not Amazon's. Default: Amazon's."
    )
    s3_region: str | None = Field(
        default=None,
        min_length=1,
        max_length=63,
        description="The bucket's region. Default: `AWS_REGION`, or us-east-1.",
    )
    s3_allow_http: bool = Field(
        default=False, description="Whether `s3_endpoint` may be `http://`: models would be readable on the way."
    )

    s3_shared: bool = Field(
        default=False,
        description="Whether several servers of one ledger keep their models under `s3_url` together, each once: on "
        "for all of them, from the making of the ledger on. A model is deleted when all have let it go.",
    )
    redirect: bool = Field(
        default=False,
        description="Whether clients that ask for it are sent to the bucket for updates' models, by a link that holds "
        "for five minutes, instead of through this server. They must reach `s3_endpoint` by the same name.",
    )

    @field_validator("s3_url")
    @classmethod
    def _names_a_bucket(cls, value: str | None) -> str | None:
        if value is not None:
            parse_s3_url(value)
        return value

    @model_validator(mode="after")
    def _s3_is_whole(self) -> "BlobSettings":
        if self.store == "s3" and self.s3_url is None:
            raise ValueError("store = s3 needs s3_url, such as s3://bucket/prefix")
        if self.s3_endpoint is not None:
            scheme, separator, rest = self.s3_endpoint.partition("://")
            if scheme not in {"http", "https"} or not separator or not rest or "@" in rest:
                raise ValueError("s3_endpoint must be a URL such as https://s3.example.org")
            if scheme == "http" and not self.s3_allow_http:
                raise ValueError("s3_endpoint has no TLS; write https://, or set s3_allow_http")
        return self

    @property
    def s3(self) -> S3Address | None:
        if self.s3_url is None:
            return None
        bucket, prefix = parse_s3_url(self.s3_url)
        return S3Address(
            bucket, prefix, self.s3_endpoint, self.s3_region, allow_http=self.s3_allow_http, shared=self.s3_shared
        )


class PruneSettings(_Group):
    """Dropping models that nobody can be offered any more; off by default, because what is gone does not come back."""

    keep_days: float | None = Field(
        default=None,
        ge=0,
        le=36_500,
        description="Models received in the last so many days of ledger time are kept, and beyond them genesis's and "
        "each author's newest inside the freshness window; others are dropped, while headers, signatures and evidence "
        "stay. Longer than any client trains: 1 and more. Without it nothing is dropped.",
    )
    pack_after_hours: float | None = Field(
        default=None,
        ge=0,
        le=876_000,
        description="Models of 256 KiB and more, whose authors' next ones came so many hours ago, are kept by what "
        "they differ by from those: the same to the last bit, in a fifth of the room where clients round what they "
        "publish, else three fifths. Reading one takes up to eight. Without it all stay whole.",
    )
    every_s: Seconds = Field(default=3600.0, description="Seconds between two prunings; the first is at the start.")


class QuotaSettings(_Group):
    """How much may be published within an hour; beyond it 429 with Retry-After."""

    author_updates: int = Field(
        default=3600,
        ge=0,
        le=1_000_000,
        description="Updates that one author may publish within an hour, all at once or spread over it; other authors "
        "do not count. 0: no limit.",
    )
    token_updates: int = Field(
        default=36_000,
        ge=0,
        le=10_000_000,
        description="The same of all that comes with one bearer token, whoever's updates they are. 0: no limit.",
    )


class AuthSettings(_Group):
    """Who may ask beside what `public` says. Tokens are made with `dag-acfl tokens create`."""

    required_for: Annotated[tuple[Guarded, ...], NoDecode, BeforeValidator(_words)] = Field(
        default=(),
        description="What is answered only with a bearer token: `writes` (selections and publications), `reads` "
        "(the ledger and its models), `metrics` (a token of scope metrics). In the environment with commas between. "
        "Default: nothing, but see `public`.",
    )


class Settings(BaseSettings):
    """All settings of one server; immutable."""

    model_config: ClassVar[SettingsConfigDict] = SettingsConfigDict(
        env_prefix=ENV_PREFIX,
        env_nested_delimiter="__",
        env_file=ENV_FILE,
        env_file_encoding="utf-8",
        toml_file=TOML_FILE,
        extra="ignore",
        frozen=True,
    )

    data_dir: Path = Field(
        default=Path("dag-acfl-data"), description="Folder for the database, the server's key and temporary files."
    )
    server_key: Path | None = Field(
        default=None,
        description="PEM file with the server's private key, where another program keeps it: such as a mounted Secret, "
        "which its group may read (mode 0440). Default: `server-key.pem` in `data_dir`, made on first use.",
    )
    database_url: SecretStr | None = Field(
        default=None,
        description="SQLAlchemy URL of the database, `sqlite:///…` or `postgresql+psycopg://…`. "
        "Default: `ledger.sqlite3` in `data_dir`.",
    )
    host: str = Field(
        default="127.0.0.1", min_length=1, max_length=253, description="Address to listen on; `0.0.0.0` for all."
    )
    public: bool = Field(
        default=False,
        description="Whether everybody who reaches the server, by any name, may read and write. Without it, a server "
        "that others than this machine reach (`host` is not loopback, or there are `trusted_proxies`) asks for tokens "
        "for `reads` and `writes`.",
    )
    port: int = Field(default=8900, ge=0, le=65_535, description="TCP port to listen on; 0 lets the system choose.")
    log_level: LogLevel = Field(default="info", description="Least important events to log.")
    workers: int = Field(
        default=1,
        ge=1,
        le=64,
        description="Processes of this machine that serve the ledger together, from one port. Limits and memory are "
        "each one's own.",
    )
    worker_threads: int = Field(
        default=8,
        ge=1,
        le=256,
        description="Threads of each process for database and model work; the event loop does none of it. Requests of "
        "one caller have as many as are left at most: alone, half.",
    )
    docs_enabled: bool = Field(default=True, description="Whether `/docs` and `/openapi.json` are served.")
    console_enabled: bool = Field(
        default=True, description="Whether the console is served under `/ui/`. What it shows asks for a token as ever."
    )
    min_free_bytes: int = Field(
        default=256 * MIB,
        ge=0,
        le=1 << 50,
        description="With less than this, and a model, free on the disk of the data folder, nothing more is written: "
        "selections and publications are answered 503, `/readyz` too, and reading goes on. 0: until the disk is full.",
    )
    drain_delay_s: int = Field(
        default=5,
        ge=0,
        le=3600,
        description="Seconds for which the server still answers after SIGTERM, so that a load balancer sees the 503 of "
        "`/readyz` before the port closes. A server whose `/readyz` nobody has asked for a minute does not wait.",
    )
    drain_s: int = Field(
        default=10, ge=1, le=3600, description="Seconds for requests in progress to end after that, or after Ctrl-C."
    )
    trusted_proxies: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_networks)] = Field(
        default=(),
        description="Addresses or networks whose X-Forwarded-For and X-Forwarded-Proto are believed, and who may have "
        "all of `http.max_connections`; in the environment with spaces or commas between. Default: none.",
    )
    cors_origins: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_origins)] = Field(
        default=(),
        description="Web pages that may ask from a browser, by their origin, such as `https://app.example.org`; in the "
        "environment with spaces or commas between. Tokens are asked for as ever. A server that asks none, as only its "
        "machine reaches it, trusts these pages as much as programs there. Default: none.",
    )
    peers: Annotated[tuple[Peer, ...], NoDecode, BeforeValidator(_peers)] = Field(
        default=(),
        description="Where other members of the ledger are, each as `name=url#publickey`, as `dag-acfl keys peer` "
        "prints it; in the environment with spaces between. It comes before the address in acts, and makes nobody a "
        "member (see `dag-acfl members`), unless genesis lists none. An own entry is passed over. Default: none.",
    )
    overlay: Overlay = Field(
        default="complete",
        description="Whom of its peers this server gossips with. `complete`: all. `ring`, `small-world`: its "
        "neighbours in such a graph over all servers in the order of their keys; all must have the same setting.",
    )
    peers_coded: bool = Field(
        default=False,
        description="Whether models of more than 512 KiB are asked of peers by what they differ by from one that is "
        "here, the same to the last bit: a fifth of the bytes where clients round what they publish, else three "
        "fifths, and 0.1 s of a core more on either side for 13 MB. A peer that does not know it sends whole models.",
    )
    peers_ca_file: Path | None = Field(
        default=None,
        description="PEM file with the authorities behind the peers' certificates, believed instead of the system's. "
        "Default: the system's authorities.",
    )
    auth: AuthSettings = Field(default_factory=AuthSettings, description="Access.")
    quota: QuotaSettings = Field(default_factory=QuotaSettings, description="How much one may publish.")
    http: HttpSettings = Field(default_factory=HttpSettings, description="Limits of connections.")
    tls: TlsSettings = Field(default_factory=TlsSettings, description="TLS.")
    cache: CacheSettings = Field(default_factory=CacheSettings, description="Caches.")
    blobs: BlobSettings = Field(default_factory=BlobSettings, description="Large models.")
    prune: PruneSettings = Field(default_factory=PruneSettings, description="Models that are not needed any more.")

    @field_validator("database_url")
    @classmethod
    def _known_database(cls, value: SecretStr | None) -> SecretStr | None:
        if value is None:
            return None
        try:
            url = make_url(value.get_secret_value())
        except ArgumentError:
            raise ValueError("must be a database URL such as sqlite:///ledger.sqlite3") from None
        if url.get_backend_name() not in {"sqlite", "postgresql"}:
            raise ValueError("must begin with sqlite:// or postgresql+psycopg://")
        return value

    @field_validator("prune")
    @classmethod
    def _packs_what_is_its_own(cls, value: PruneSettings, others: ValidationInfo) -> PruneSettings:
        blobs = others.data.get("blobs")
        if value.pack_after_hours is not None and blobs is not None and blobs.s3_shared:
            raise ValueError("pack_after_hours would change what others read; leave it out where blobs.s3_shared is on")
        return value

    @property
    def is_reached_by_others(self) -> bool:
        """Whether others than this machine's own programs may reach the server: by its address, or through a proxy."""
        return bool(self.trusted_proxies) or not is_loopback(self.host)

    @property
    def needs_token_for(self) -> frozenset[Guarded]:
        """What is answered only with a token."""
        by_itself: tuple[Guarded, ...] = ("reads", "writes") if self.is_reached_by_others and not self.public else ()
        return frozenset((*self.auth.required_for, *by_itself))

    @property
    def resolved_database_url(self) -> str:
        """The database's URL, password included: for the engine, never for a log."""
        if self.database_url is not None:
            return self.database_url.get_secret_value()
        path = str(self.data_dir / "ledger.sqlite3")
        return URL.create("sqlite", database=path).render_as_string(hide_password=False)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003 -- the base class's signature
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The order that the module docstring promises."""
        return init_settings, env_settings, dotenv_settings, TomlConfigSettingsSource(settings_cls)


def load_settings(**flags: Any) -> Settings:
    """Settings from flags, environment, ``.env``, ``dag-acfl.toml`` and defaults.

    Args:
        flags: Values of the command's options by field name; None stands for an option that was not given. A
            group's value is a mapping: ``http={"timeout_s": 5}``.

    Raises:
        ParameterError: A value is wrong; the message is one line that names the setting. Values are not
            repeated, for they may be secret.
    """
    given = {name: value for name, value in flags.items() if value is not None}
    unknown = sorted(set(given) - set(Settings.model_fields))
    if unknown:
        raise ParameterError(f"unknown setting {', '.join(unknown)}")
    try:
        _check_toml()
        _check_variables()
        return Settings(**given)
    except ValidationError as error:
        raise ParameterError("; ".join(_sentence(fault) for fault in error.errors())) from None
    except SettingsError as error:
        named = re.search(r'field "(\w+)"', str(error))
        raise ParameterError(_one_line(error) if named is None else _about(named[1], _group_hint(named[1]))) from None
    except UnicodeDecodeError:
        raise ParameterError(f"{ENV_FILE} is not UTF-8 text") from None


def is_loopback(host: str) -> bool:
    """Whether an address is one that only programs of this machine reach."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _check_toml() -> None:
    """Refuse a file that is no TOML, or that names what is no setting: a typo would be silent otherwise."""
    try:
        written = TomlConfigSettingsSource(Settings)()
    except (ValueError, OSError) as error:
        raise ParameterError(f"{TOML_FILE}: {_one_line(error)}") from None
    unknown = sorted(set(written) - set(Settings.model_fields))
    if unknown:
        raise ParameterError(f"{TOML_FILE}: unknown setting {', '.join(unknown)}")


def _check_variables() -> None:
    """Refuse ``DAG_ACFL_AUTH_REQUIRED_FOR``: a group's setting with one underscore for two is silent else."""
    groups = [name for name in Settings.model_fields if _parts(name)]
    meant = {f"{ENV_PREFIX}{each}_{part}".lower(): f"{each}__{part}" for each in groups for part in _parts(each)}
    for variable in (*EnvSettingsSource(Settings).env_vars, *DotEnvSettingsSource(Settings).env_vars):
        if variable in meant:
            raise ParameterError(_about(meant[variable], f"has two underscores; {variable.upper()} is no setting"))


def _sentence(fault: ErrorDetails) -> str:
    name = "__".join(str(part) for part in fault["loc"] if isinstance(part, str)) or "settings"
    message = fault["msg"].removeprefix("Value error, ")
    group = name.partition("__")[0]
    if fault["type"] == "model_type":
        message = _group_hint(group)
    elif fault["type"] == "extra_forbidden":
        message = f"is unknown; [{group}] has {', '.join(_parts(group))}"
    return _about(name, message + _HOW_TO_WRITE.get(fault["type"], ""))


_HOW_TO_WRITE: Final[Mapping[str, str]] = {
    "bool_parsing": "; write true or false",
    "int_parsing": "; write a whole number in digits, such as 10",
    "float_parsing": "; write a number such as 10 or 2.5",
}


def _about(name: str, message: str) -> str:
    return f"setting {name.replace('__', '.')} ({ENV_PREFIX}{name.upper()}): {message[:1].lower()}{message[1:]}"


def _parts(group: str) -> tuple[str, ...]:
    return tuple(getattr(Settings.model_fields[group].annotation, "model_fields", ()))


def _group_hint(group: str) -> str:
    first = f"{ENV_PREFIX}{group}__{_parts(group)[0]}".upper()
    return f"is a group of settings; set each by itself, such as {first}"


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def describe(settings: Settings) -> str:
    """The settings in force as a ``dag-acfl.toml``, a database password masked: ``serve --print-config``."""
    lines: list[str] = []
    groups: list[tuple[str, BaseModel]] = []
    for name in Settings.model_fields:
        value = getattr(settings, name)
        if isinstance(value, BaseModel):
            groups.append((name, value))
        elif name == "database_url" and value is not None:
            masked = make_url(settings.resolved_database_url).render_as_string(hide_password=True)
            lines.append(f"database_url = {_toml(masked)}")
        else:
            lines.append(_line(name, value))
    for group, values in groups:
        lines += ["", f"[{group}]"]
        lines += [_line(name, getattr(values, name)) for name in type(values).model_fields]
    return "\n".join(lines) + "\n"


def _line(name: str, value: object) -> str:
    return f"# {name} is not set" if value is None else f"{name} = {_toml(value)}"


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, tuple):
        return f"[{', '.join(_toml(item) for item in value)}]"
    text = str(value).replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in text) + '"'
