"""Bad input to every route that takes any: the status, a problem body, nothing written, the server alive.

The numbers are those of the project's list of bad inputs; transport (1-15) is in test_transport_bad_input.py.
Each case runs on both databases, and both must answer alike.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from httpx2 import Response

from fl_core.models import encode_flat, flat
from fl_core.wire import v1
from tests.bad_models import REFUSED as BAD_MODELS
from tests.builders import LAYOUT, START, author_of, key_from_seed, make_genesis, model
from tests.serving import Server, serving, signed

JSON = {"content-type": "application/json"}
SAFETENSORS = {"content-type": v1.MODEL_MEDIA_TYPE}


@pytest.fixture(scope="module")
def server(module_database_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One ledger for all cases: since nothing may be written, they cannot disturb one another."""
    genesis = make_genesis(selector_params={"k": 3}, max_parents=16)
    folder: Path = tmp_path_factory.mktemp("bad-input")
    with serving(module_database_url, folder, genesis=genesis) as running:
        tip = running.publish(parents=[running.ledger_id], model=model(1), secret="5" * 64)["id"]
        old = tip
        for step in range(5):
            tip = running.publish(parents=[tip], model=model(1, step), secret="a" * 64)["id"]
        running.app.state.known = {"old": old, "tip": tip}
        yield running


@dataclass(frozen=True)
class Case:
    """One bad request and the statuses that are right."""

    name: str
    send: Callable[[Server], Response]
    status: tuple[int, ...]
    type: str | None = None


def select(body: bytes | str, **headers: str) -> Callable[[Server], Response]:
    data = body.encode("utf-8", "surrogatepass") if isinstance(body, str) else body
    return lambda server: server.client.post(v1.SELECTIONS, content=data, headers={**JSON, **headers})


def publish(**fields: Any) -> Callable[[Server], Response]:
    def send(server: Server) -> Response:
        given = {"parents": [server.app.state.known["tip"]], "num_examples": 1, "secret": "6" * 64, **fields}
        return server.post({name: value for name, value in given.items() if value is not ...}, model(1, 2))

    return send


def publish_raw(document: bytes) -> Callable[[Server], Response]:
    return lambda server: server.post(document, model(1, 2))


def publish_signed(**changes: object) -> Callable[[Server], Response]:
    return lambda server: server.post(signed(server, model(2), **changes), model(2))  # type: ignore[arg-type]


def get(path: str) -> Callable[[Server], Response]:
    return lambda server: server.client.get(path)


def multipart(body: bytes, content_type: str = "multipart/form-data; boundary=xx") -> Callable[[Server], Response]:
    return lambda server: server.client.post(v1.TRANSACTIONS, content=body, headers={"content-type": content_type})


def part(name: str, data: bytes = b"{}", extra: str = "") -> bytes:
    return f'--xx\r\nContent-Disposition: form-data; name="{name}"\r\n{extra}\r\n'.encode() + data + b"\r\n"


def with_value(value: float) -> bytes:
    vector = flat(LAYOUT, model(1, 2, 3, 4)).copy()
    vector[1] = value
    return encode_flat(LAYOUT, vector)


def ask_with_old(server: Server) -> Response:
    return server.post({"parents": [server.app.state.known["old"]], "num_examples": 1, "secret": "6" * 64}, model(1, 2))


ID = '"' + "0" * 64 + '"'
ASK = '{"transaction": ' + ID + "}"
END = b"--xx--\r\n"

CASES = [
    # Content types and codings
    Case("16 no content type", lambda s: s.client.post(v1.SELECTIONS, content=ASK), (415,)),
    Case("16 unsupported content type", select(ASK, **{"content-type": "text/plain"}), (415,)),
    Case("16 xml", lambda s: s.client.post(v1.TRANSACTIONS, content=b"<a/>", headers={"content-type": "text/xml"}), (415,)),
    *(Case(f"17 content-encoding {coding}", select(ASK, **{"content-encoding": coding}), (415,)) for coding in ("gzip", "br", "deflate", "zstd")),
    Case("18 charset utf-16", select(ASK.encode("utf-16"), **{"content-type": "application/json; charset=utf-16"}), (415,)),
    Case("18 UTF-16 body", select(ASK.encode("utf-16")), (400,)),
    Case("18 BOM", select(b"\xef\xbb\xbf" + ASK.encode()), (400,)),
    Case("20 multipart instead of raw", lambda s: s.client.post(v1.SELECTIONS, files={"model": model(1)}), (415,)),
    Case("20 raw instead of multipart", lambda s: s.client.post(v1.TRANSACTIONS, content=model(1), headers=SAFETENSORS), (415,)),
    # Size
    Case("21 declared length beyond the limit", select(b" " * 200_000), (413,)),
    Case("22 chunked body beyond the limit", lambda s: s.client.post(v1.SELECTIONS, content=iter([b" " * 50_000] * 4), headers=JSON), (413,)),
    Case("22 model part beyond the limit", lambda s: s.post({"num_examples": 1}, b"\x00" * 100_000), (413,)),
    Case("22 transaction part beyond the limit", lambda s: s.post(b" " * 70_000, model(1)), (413,)),
    # Multipart grammar
    Case("no boundary", multipart(b"", "multipart/form-data"), (400,)),
    Case("empty form", multipart(b""), (400,)),
    Case("form cut off", multipart(part("transaction") + part("model", model(1))), (400,)),
    Case("garbage before the boundary", multipart(b"garbage"), (400,)),
    Case("a part is missing", multipart(part("transaction") + END), (422,), "parts-invalid"),
    Case("a part twice", multipart(part("model", model(1)) * 2 + END), (422,), "parts-invalid"),
    Case("an unknown part", multipart(part("extra") + END), (422,), "parts-invalid"),
    Case("a part of another type", multipart(part("model", b"x", "Content-Type: text/html\r\n") + END), (415,)),
    Case("an unknown transfer encoding", multipart(part("model", b"x", "Content-Transfer-Encoding: x\r\n") + END), (400,)),
    Case("part headers without end", multipart(b"--xx\r\nX-A: " + b"a" * 9000), (400,)),
    # safetensors, asked with and published
    *(Case(f"26-40 select with {name}", lambda s, b=build: s.join(b()), (413, 422)) for name, build, _ in BAD_MODELS),  # type: ignore[misc]
    *(Case(f"26-40 publish {name}", lambda s, b=build: s.post({"parents": [s.app.state.known["tip"]], "num_examples": 1, "secret": "6" * 64}, b()), (413, 422)) for name, build, _ in BAD_MODELS),  # type: ignore[misc]
    Case("33 NaN", lambda s: s.join(with_value(np.nan)), (422,), "model-not-finite"),
    Case("34 infinity", lambda s: s.join(with_value(-np.inf)), (422,), "model-not-finite"),
    Case("35 a value beyond the bound", lambda s: s.join(with_value(3e38)), (422,), "model-not-finite"),
    Case("35 a step beyond the bound", lambda s: s.post({"parents": [s.app.state.known["tip"]], "num_examples": 1, "secret": "a" * 64}, model(1e6)), (422,), "step-too-long"),
    Case("35 a norm beyond the bound", lambda s: s.join(model(9.9e37, 9.9e37)), (422,), "model-norm"),
    # JSON
    *(Case(f"41 {body[:12]!r}", select(body), (400,)) for body in (b"", b'{"transaction"', b"\xff\xfe", b"{'a':1}")),
    *(Case(f"41 {body}", select(body), (422,)) for body in ("[]", "null", "5", '"x"', "{}")),
    *(Case(f"42 {number}", publish_raw(b'{"num_examples": 1, "parents": [' + ID.encode() + b'], "metrics": {"a": ' + number + b"}}"), (400, 422)) for number in (b"NaN", b"Infinity", b"-Infinity", b"1e400", b'"nan"')),
    *(Case(f"43 {str(number)[:9]}", publish(num_examples=number), (422,)) for number in (2**63, 2**64, 10**400, -1, 0)),
    Case("43 5,000 digits", publish_raw(b'{"num_examples": ' + b"9" * 5000 + b"}"), (400, 422)),
    Case("44 lone surrogate", select('{"transaction": "\\ud800"}'), (422,)),
    Case("44 raw surrogate bytes", select(b'{"transaction": "\xed\xa0\x80"}'), (400,)),
    Case("45 900 deep", select("[" * 900 + "]" * 900), (400, 422)),
    Case("45 30,000 deep", select("[" * 30_000 + "]" * 30_000), (400, 422)),
    Case("46 NUL in text", publish(metrics={"a\u0000b": 1.0}), (422,)),
    Case("47 a key twice", select('{"transaction": ' + ID + ', "transaction": ' + ID + "}"), (400, 422)),
    Case("48 unknown field", publish(surplus=1), (422,), "request-invalid"),
    *(Case(f"49 {value!r} for an integer", publish(num_examples=value), (422,)) for value in ("1", 1.0, True, None, [1])),
    Case("49 an integer for text", publish(author=5), (422,)),
    Case("50 direction override in a name", publish(metrics={"a\u202eb": 1.0}), (422,)),
    Case("50 capital letters in a metric's name", publish(metrics={"Accuracy": 1.0}), (422,)),
    # Ids, paths, queries
    *(
        Case(f"51 {kind} {bad[:14]!r}", get(f"/v1/{kind}/{bad}"), (404, 422))
        for kind in ("transactions", "models", "selections")
        for bad in ("A" * 64, "0" * 63, "0" * 65, "%00" * 64, "%ff" * 64, "%D9%A1" * 64, "x" * 64, "0x" + "0" * 62)
    ),
    Case("51 upper case in a body", select('{"transaction": "' + "A" * 64 + '"}'), (422,)),
    *(Case(f"52 {path}", get(path), (404, 422)) for path in ("/v1/models/..%2f..%2fetc%2fpasswd", "/v1/../etc/passwd", "/v1//models", "/v1/models/%2e%2e", "/static/../../etc/passwd")),
    Case("53 unknown id", select(ASK), (404,), "transaction-unknown"),
    Case("53 unknown selection", publish(parents=..., selection="0" * 64), (404,), "selection-unknown"),
    *(Case(f"54 limit={limit}", get(f"{v1.TRANSACTIONS}?limit={limit}"), (422,)) for limit in ("-1", "0", "1000000000000", "1_000", "%D9%A1", "1.0", "", "1e2", "0x10")),
    Case("54 limit twice", get(f"{v1.TRANSACTIONS}?limit=1&limit=2"), (422,)),
    Case("54 unknown query", get(f"{v1.TRANSACTIONS}?order=asc"), (422,)),
    Case("54 query where there is none", get(f"{v1.TIPS}?a=1"), (422,)),
    *(Case(f"55 cursor {cursor}", get(f"{v1.TRANSACTIONS}?after={cursor}"), (410, 422)) for cursor in ("x", "0", "-1", "0" * 16 + "-5", "' OR 1=1 --", "a" * 16 + "-", "9" * 70)),
    Case("55 cursor beyond the newest", lambda s: s.client.get(v1.TRANSACTIONS, params={"after": f"{s.service.epoch[:16]}-999"}), (410,)),
    *(Case(f"56 {meta}", get(f"/v1/transactions/{meta}"), (404, 422)) for meta in ("%25", "'; DROP TABLE transactions; --", "_" * 64, "$.a[*]")),
    Case("13 wrong method", lambda s: s.client.delete(v1.TIPS), (405,)),
    Case("19 a thousand ranges on an unknown model", lambda s: s.client.get("/v1/models/" + "0" * 64, headers={"range": "bytes=" + "0-0," * 999 + "0-0"}), (404,)),
    Case("there is nothing at this path", get("/v2/genesis"), (404,)),
    Case("a slash too many is not redirected", get("/v1/tips/?token=secret"), (404,)),
    Case("event stream from a foreign cursor", lambda s: s.client.get(v1.EVENTS, headers={"last-event-id": "0" * 16 + "-1"}), (410,)),
    Case("event stream from garbage", lambda s: s.client.get(v1.EVENTS, headers={"last-event-id": "zz"}), (422,)),
    # Rules of the ledger
    Case("57 unknown parent", publish(parents=["1" * 64]), (409,), "parents-unknown"),
    Case("59 a parent twice", lambda s: s.post({"parents": [s.ledger_id] * 2, "num_examples": 1, "secret": "6" * 64}, model(1)), (422,), "parents-invalid"),
    Case("59 unsorted parents", lambda s: s.post({"parents": sorted([s.ledger_id, s.app.state.known["tip"]], reverse=True), "num_examples": 1, "secret": "6" * 64}, model(1)), (422,), "parents-invalid"),
    Case("59 no parents", publish(parents=[]), (422,)),
    Case("59 neither parents nor selection", publish(parents=...), (422,), "transaction-invalid"),
    Case("59 both parents and selection", lambda s: s.post({"parents": [s.ledger_id], "selection": s.join(model(1)).json()["id"], "num_examples": 1, "secret": "6" * 64}, model(1)), (422,), "parents-invalid"),
    Case("59 more parents than the ledger allows", publish(parents=[f"{i:064x}" for i in range(17)]), (422,), "parents-invalid"),
    Case("59 more parents than the format allows", publish(parents=[f"{i:064x}" for i in range(1025)]), (413, 422)),
    Case("genesis is no selection's reference", lambda s: s.select(s.ledger_id), (422,), "transaction-invalid"),
    Case("genesis document is no selection", lambda s: s.post({"selection": s.service.genesis.digest, "num_examples": 1, "secret": "6" * 64}, model(1)), (404,), "selection-unknown"),
    Case("62 id is not that of the transaction", publish_signed(id="1" * 64), (422,), "digest-mismatch"),
    Case("62 digest is not that of the model", publish(model_digest="1" * 64), (422,), "digest-mismatch"),
    Case("65 noise beyond the bound", publish(noise_std=1.5), (422,), "transaction-invalid"),
    Case("65 created before 1970", publish(created_at_ms=-1), (422,)),
    Case("65 created in year 10^6", publish(created_at_ms=31_556_889_864_403_199_000), (422,)),
    Case("66 another author's update as a parent", ask_with_old, (422,), "parents-invalid"),
    Case("67 no signature for a key", publish_signed(signature=None, id=None), (422,), "signature-invalid"),
    Case("67 a bad signature", publish_signed(signature="0" * 128), (422,), "signature-invalid"),
    Case("67 another key's signature", publish_signed(author=author_of(key_from_seed(51)), id=None), (422,), "signature-invalid"),
    Case("67 a small-order key", publish_signed(author="key:01" + "00" * 31, signature="01" + "00" * 63, id=None), (422,), "signature-invalid"),
    Case("67 a short signature", publish_signed(signature="00"), (422,), "request-invalid"),
    Case("67 a signature without a key", publish(signature="0" * 128), (422,), "signature-invalid"),
    Case("an author that is none", publish(author="0" * 64), (422,), "request-invalid"),
    Case("33 metrics", publish(metrics={f"m{i}": 1.0 for i in range(33)}), (422,), "transaction-invalid"),
    Case("negative zero as metric", publish(metrics={"a": -0.0}), (422,), "transaction-invalid"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_bad_input_is_a_problem_and_changes_nothing(server: Server, case: Case) -> None:
    before = server.client.get(v1.TIPS).json()
    response = case.send(server)
    assert response.status_code in case.status, response.text
    assert response.headers["content-type"] == v1.PROBLEM_MEDIA_TYPE
    problem = json.loads(response.content)
    assert problem["status"] == response.status_code
    assert problem["type"].startswith("/problems/")
    if case.type is not None:
        assert problem["type"] == f"/problems/{case.type}"
    assert "Traceback" not in response.text
    assert server.client.get(v1.TIPS).json() == before


def test_accepted_oddities_are_accepted(server: Server) -> None:
    """Far in the past is information, not a fault; a part without a type is what curl sends."""
    document = json.dumps(
        {"parents": [server.ledger_id], "start": START, "num_examples": 1, "created_at_ms": 0, "secret": "e" * 64}
    )
    body = part("transaction", document.encode()) + part("model", model(2)) + END
    response = server.client.post(
        v1.TRANSACTIONS, content=body, headers={"content-type": "multipart/form-data; boundary=xx"}
    )
    assert (response.status_code, response.json()["created_at"]) == (201, "1970-01-01T00:00:00.000Z")
