"""Several servers keep their models under one prefix: once each, for as long as one of them needs it."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from fl_core.errors import ParameterError
from fl_core.models import ModelLayout, TensorSpec
from fl_core.types import Digest, digest_of
from ledger_server.admin.doctor import check_bucket
from ledger_server.buckets import S3Address
from ledger_server.settings import load_settings
from ledger_server.store import open_store
from ledger_server.store.blobs import s3 as bucket_module
from ledger_server.store.blobs.shared import Sharing
from ledger_server.store.errors import StoreLocationError, StoreUnavailableError
from ledger_server.store.journal import Store
from tests.builders import TinyLedger, make_genesis, model
from tests.contract.test_store import NOW_MS, found, put
from tests.network import Node, network, settle
from tests.s3 import S3Service

LARGE = ModelLayout.of([TensorSpec("w", "F32", (150_000,))])
"""600 KB: models that are fetched each by itself."""
ONE = digest_of(model(1))


def in_bucket(address: S3Address, **changes: Any) -> dict[str, Any]:
    given = {"store": "s3", "s3_url": str(address), "s3_endpoint": address.endpoint, "s3_allow_http": True}
    return {**given, "s3_shared": True, **changes}


@pytest.fixture
def address(s3: S3Service) -> S3Address:
    return replace(s3.fresh(), shared=True)


@pytest.fixture
def tiny() -> TinyLedger:
    return TinyLedger()


Open = Callable[[str], Store]


@pytest.fixture
def opened(address: S3Address, tmp_path: Path) -> Iterator[Open]:
    """Opens the journal of a server by its name; what is there is opened again, as after a restart."""
    with ExitStack() as stack:

        def open_(name: str, **changes: Any) -> Store:
            (tmp_path / name).mkdir(exist_ok=True)
            url, place = f"sqlite:///{tmp_path / name / 'ledger.sqlite3'}", replace(address, **changes)
            return stack.enter_context(open_store(url, data_dir=tmp_path / name, blobs="s3", s3=place))

        yield open_


@pytest.fixture
def servers(opened: Open, tiny: TinyLedger) -> list[Store]:
    """Two servers that hold an update of ann with model 1."""
    draft = tiny.draft("ann", [tiny.genesis_id], model(1))
    stores = [opened(name) for name in ("a", "b")]
    for store in stores:
        found(store, tiny)
        put(store, draft, model(1))
    return stores


def keys(s3: S3Service, address: S3Address) -> list[str]:
    return [key.removeprefix(f"{address.prefix}/") for key in s3.objects(address)]


def let_go(store: Store) -> None:
    assert store.removal.prune([ONE], known=2, now_ms=NOW_MS).models == 1
    store.removal.collect()


def identity_of(store: Store) -> str:
    return str(store._blobs._sharing._journal)  # type: ignore[attr-defined]


# -- deleting --------------------------------------------------------------------------------------------


def test_a_model_lies_there_once_and_goes_with_the_last_that_needs_it(
    s3: S3Service, address: S3Address, servers: list[Store]
) -> None:
    first, second = servers
    assert [key for key in keys(s3, address) if len(key) == 64] == sorted([ONE, digest_of(model(1, 1, 1, 1))])
    let_go(first)
    assert [first.model(ONE), second.model(ONE)] == [None, model(1)]
    let_go(second)
    assert ONE not in keys(s3, address)
    assert not [key for key in keys(s3, address) if key.startswith("let-go")], "nothing is left of it"


def test_what_somebody_else_puts_among_the_marks_stops_nobody(
    s3: S3Service, address: S3Address, servers: list[Store]
) -> None:
    for key in ("let-go/journal/a", "let-go/README", f"let-go/{ONE}", f"let-go/{ONE}/a/b"):
        s3.put(address, f"{address.prefix}/{key}", b"")
    for store in servers:
        let_go(store)
    assert ONE not in keys(s3, address)
    assert "journal" in keys(s3, address)


def test_what_one_has_never_heard_of_is_not_its_to_delete(
    s3: S3Service, address: S3Address, servers: list[Store], tiny: TinyLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_module, "YOUNG", timedelta(seconds=-60))  # as a day later
    first, second = servers
    put(second, tiny.draft("bob", [tiny.genesis_id], model(2)), model(2))
    assert [first.removal.sweep(), second.removal.sweep()] == [0, 0]
    assert second.model(digest_of(model(2))) == model(2)


def test_a_server_that_joins_keeps_what_it_brings_in_and_the_others_let_go(
    servers: list[Store], opened: Open, tiny: TinyLedger
) -> None:
    late = opened("c")
    found(late, tiny)
    let_go(servers[0])
    let_go(servers[1])
    assert late.others_model(ONE, len(model(1))) == model(1)
    put(late, tiny.draft("ann", [tiny.genesis_id], model(1)), model(1))
    servers[0].removal.collect()
    assert late.model(ONE) == model(1)


def test_one_that_has_left_for_good_holds_up_deletions_until_it_is_taken_off(
    s3: S3Service, address: S3Address, servers: list[Store], opened: Open
) -> None:
    first, second = servers
    left = identity_of(second)
    second.close()
    let_go(first)
    assert ONE in keys(s3, address)
    s3.remove(address, f"{address.prefix}/servers/{left}")
    assert first.removal.sweep() == 0
    assert ONE not in keys(s3, address)
    with pytest.raises(StoreLocationError, match=rf"taken off those that share .* put the empty object servers/{left}"):
        opened("b")


def test_a_server_that_was_taken_off_deletes_nothing(s3: S3Service, address: S3Address, servers: list[Store]) -> None:
    for key in keys(s3, address):
        if key.startswith("servers/"):
            s3.remove(address, f"{address.prefix}/{key}")
    for store in servers:
        let_go(store)
    assert ONE in keys(s3, address)


def test_a_model_that_comes_again_is_kept_again(
    s3: S3Service, address: S3Address, servers: list[Store], tiny: TinyLedger
) -> None:
    first, second = servers
    let_go(first)
    put(first, tiny.draft("bob", [tiny.genesis_id], model(1)), model(1))
    let_go(second)
    assert first.model(ONE) == model(1)
    let_go_later = first.removal.prune([ONE], known=3, now_ms=NOW_MS)
    assert let_go_later.models == 1
    assert second.removal.collect() == 1, "whoever comes by deletes"


def test_a_journal_that_was_put_back_from_a_copy_keeps_what_it_has_not_let_go(
    servers: list[Store], opened: Open, tmp_path: Path
) -> None:
    first, second = servers
    first.close()
    database = tmp_path / "a" / "ledger.sqlite3"
    copy = database.read_bytes()
    first = opened("a")
    let_go(first)
    first.close()
    database.write_bytes(copy)
    first = opened("a")
    first.removal.sweep()
    let_go(second)
    assert first.model(ONE) == model(1)


# -- at the same time, and cut short ---------------------------------------------------------------------


def test_a_model_is_not_taken_back_while_it_is_deleted_and_not_deleted_while_it_is_taken_back(
    s3: S3Service, address: S3Address, servers: list[Store], tiny: TinyLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One server deletes; between its steps the other publishes the model again, and tries until it can."""
    first, second = servers
    let_go(first)
    assert second.removal.prune([ONE], known=2, now_ms=NOW_MS).models == 1
    delete, tried = second._blobs.delete, []  # type: ignore[attr-defined]

    def publish_meanwhile(key: str) -> None:
        if key == ONE or (key.startswith(f"let-go/{ONE}/") and "now-" not in key and not tried):
            with pytest.raises(StoreUnavailableError, match="just being deleted"):
                put(first, tiny.draft("bob", [tiny.genesis_id], model(1)), model(1))
            tried.append(key)
        delete(key)

    monkeypatch.setattr(second._blobs, "delete", publish_meanwhile)
    assert second.removal.collect() == 1
    assert len(tried) == 2, "before a mark went, and before the model did"
    put(first, tiny.draft("bob", [tiny.genesis_id], model(1)), model(1))
    assert second.removal.collect() == 0
    assert first.model(ONE) == model(1)


def test_a_model_that_is_taken_back_before_marks_are_counted_again_stays(
    servers: list[Store], tiny: TinyLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = servers
    let_go(first)
    assert second.removal.prune([ONE], known=2, now_ms=NOW_MS).models == 1
    counting = Sharing._delete

    def taken_back_first(self: Sharing, digest: Digest) -> bool:
        put(first, tiny.draft("bob", [tiny.genesis_id], model(1)), model(1))
        return counting(self, digest)

    monkeypatch.setattr(Sharing, "_delete", taken_back_first)
    assert second.removal.collect() == 0
    assert first.model(ONE) == model(1)


def test_what_a_server_holds_is_not_deleted_by_it_whoever_marks_it_in_its_name(
    s3: S3Service, address: S3Address, servers: list[Store]
) -> None:
    let_go(servers[0])
    mark = f"{address.prefix}/let-go/{ONE}/{identity_of(servers[1])}"
    s3.put(address, mark, b"")
    assert servers[1].removal.collect() == 0
    assert servers[1].model(ONE) == model(1)
    assert mark not in s3.objects(address)


def test_nobody_joins_while_another_deletes(
    s3: S3Service, address: S3Address, servers: list[Store], opened: Open, tiny: TinyLedger
) -> None:
    late, registered = opened("c"), len([key for key in keys(s3, address) if key.startswith("servers/")])
    said = f"{address.prefix}/let-go/{ONE}/now-0123456789abcdef"
    s3.put(address, said, b"")
    with pytest.raises(StoreUnavailableError, match="is deleting models from the bucket; try again in a second"):
        found(late, tiny)
    assert len([key for key in keys(s3, address) if key.startswith("servers/")]) == registered
    s3.remove(address, said)
    found(late, tiny)


class KilledError(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("steps", range(9))
def test_whoever_is_killed_in_the_middle_of_a_deletion_leaves_what_the_next_finishes(
    *,
    steps: int,
    s3: S3Service,
    address: S3Address,
    servers: list[Store],
    opened: Open,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second server dies before its n-th write to the bucket, from letting go to the last deletion."""
    monkeypatch.setattr(bucket_module, "YOUNG", timedelta(seconds=-60))  # as a day later
    first, second = servers
    let_go(first)
    left = [steps]

    def dying(act: Callable[..., None]) -> Callable[..., None]:
        def acting(*arguments: Any) -> None:
            if not left[0]:
                raise KilledError
            left[0] -= 1
            act(*arguments)

        return acting

    with monkeypatch.context() as patch:
        for act in ("write", "delete"):
            patch.setattr(second._blobs, act, dying(getattr(second._blobs, act)))
        try:
            let_go(second)
            is_whole = True
        except KilledError:
            is_whole = False
    second.close()
    assert is_whole == (steps >= 6), "let go; say so; delete two marks and the model; unsay"
    second = opened("b")
    for store in (first, second, first, second):
        store.removal.sweep()
    assert [each for each in keys(s3, address) if ONE in each and "now-" not in each] == []
    assert {first.model(ONE), second.model(ONE)} == {None}


def test_without_the_bucket_nothing_is_let_go_and_the_next_pass_does_it(
    s3: S3Service, address: S3Address, servers: list[Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_module, "YOUNG", timedelta(seconds=-60))
    first, second = servers
    let_go(first)
    with s3.down():
        assert second.removal.prune([ONE], known=2, now_ms=NOW_MS).models == 1, "the row is what counts"
        with pytest.raises(StoreUnavailableError):
            second.removal.collect()
    assert second.removal.sweep() == 1
    assert ONE not in keys(s3, address)


# -- opening ---------------------------------------------------------------------------------------------


def test_a_prefix_is_one_servers_or_several_of_one_ledger(
    s3: S3Service, address: S3Address, servers: list[Store], opened: Any
) -> None:
    assert len(servers) == 2
    with pytest.raises(StoreLocationError, match="is shared by several servers; set blobs"):
        opened("c", shared=False)
    with pytest.raises(StoreLocationError, match="holds the models of another ledger"):
        found(opened("d"), TinyLedger(make_genesis(name="another")))
    alone = replace(s3.fresh(), shared=False)
    found(opened("e", bucket=alone.bucket, shared=False), TinyLedger())
    with pytest.raises(StoreLocationError, match="is one server's alone"):
        opened("f", bucket=alone.bucket)


def test_what_others_read_is_not_packed(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match=r"prune .*: pack_after_hours would change what others read; leave it out"):
        load_settings(data_dir=tmp_path, blobs={"s3_shared": True}, prune={"pack_after_hours": 1})


def test_the_doctor_says_how_many_share_the_bucket(address: S3Address, servers: list[Store]) -> None:
    settings = load_settings(blobs=in_bucket(address))
    assert check_bucket(settings).message == f"{address} answers, shared by {len(servers)} servers"
    alone = check_bucket(load_settings(blobs=in_bucket(address, s3_shared=False)))
    assert (alone.state, "set blobs.s3_shared" in alone.message) == ("fail", True)


# -- gossip ----------------------------------------------------------------------------------------------


def large(number: int) -> bytes:
    return model(number, 1, layout=LARGE)


def moved(node: Node) -> int:
    """Bytes that a server has exchanged with peers for models, as its metrics count them."""
    lines = node.client.get("/metrics").text.splitlines()
    return sum(
        int(float(line.split()[-1]))
        for line in lines
        if line.startswith("dag_acfl_gossip_bytes_total") and 'kind="model"' in line
    )


def grown(nodes: list[Node]) -> set[str]:
    """Each server's own client publishes two models; all servers hold them all."""
    for number, node in enumerate(nodes):
        for value in (2, 3):
            node.publish(parents=[node.ledger_id], model=large(10 * number + value))
    return set(settle(nodes, within_s=60))


@pytest.mark.parametrize("is_shared", [True, False])
def test_models_of_servers_that_share_a_bucket_travel_through_it_alone(
    *, is_shared: bool, s3: S3Service, address: S3Address, tmp_path: Path
) -> None:
    genesis = make_genesis(layout=LARGE, selector_params={"k": 3}, max_parents=4)
    blobs = in_bucket(address) if is_shared else {"store": "directory"}
    with network(tmp_path, 3, genesis=genesis, first=large(1), blobs=blobs) as nodes:
        assert len(grown(nodes)) == 7
        exchanged = [moved(node) for node in nodes]
        for node in nodes:
            for number in range(3):
                path = f"/v1/models/{digest_of(large(10 * number + 2))}"
                assert node.client.get(path).content == large(10 * number + 2)
    if is_shared:
        assert exchanged == [0, 0, 0]
        assert len([key for key in keys(s3, address) if len(key) == 64]) == 7
    else:
        assert min(exchanged) > 4 * len(large(1)), "each fetches the four of the others from peers"


def test_a_model_that_is_damaged_in_the_bucket_comes_from_the_peer_and_is_put_anew(
    s3: S3Service, address: S3Address, tmp_path: Path
) -> None:
    genesis = make_genesis(layout=LARGE, selector_params={"k": 3}, max_parents=4)
    key = f"{address.prefix}/{digest_of(large(2))}"
    with network(tmp_path, 2, genesis=genesis, first=large(1), blobs=in_bucket(address)) as nodes:
        nodes[1].stop()
        nodes[0].publish(parents=[nodes[0].ledger_id], model=large(2))
        s3.put(address, key, large(7))
        nodes[1].start()
        settle(nodes, within_s=60)
        assert nodes[1].client.get(f"/v1/models/{digest_of(large(2))}").content == large(2)
    assert s3.objects(address)[key] == large(2)


def test_without_the_bucket_nothing_comes_in_and_all_of_it_does_afterwards(
    s3: S3Service, address: S3Address, tmp_path: Path
) -> None:
    genesis = make_genesis(layout=LARGE, selector_params={"k": 3}, max_parents=4)
    with network(tmp_path, 2, genesis=genesis, first=large(1), blobs=in_bucket(address)) as nodes:
        nodes[1].stop()
        nodes[0].publish(parents=[nodes[0].ledger_id], model=large(2))
        nodes[1].start()
        with s3.down():
            time.sleep(1)
        settle(nodes, within_s=60)
        assert nodes[1].client.get(f"/v1/models/{digest_of(large(2))}").content == large(2)
