"""A bundle gives back what was written, is sound when its ledger is, and hostile files are refused."""

import io
import json
import os
import stat
import tarfile
from pathlib import Path

import pytest

from fl_core.types import Digest, digest_of
from fl_core.verify import VerifyProgress, verify
from ledger_server.admin.bundle import Bundle, BundleError, write_bundle
from tests.sources import MemorySource, sound_ledger


@pytest.fixture
def written(tmp_path: Path) -> Path:
    path = tmp_path / "ledger.dagacfl"
    write_bundle(sound_ledger().source(), path)
    return path


def test_a_bundle_gives_back_every_byte(written: Path) -> None:
    source = sound_ledger().source()
    with Bundle(written) as bundle:
        assert bundle.ledger == source.ledger
        assert bundle.count == 6
        assert dict(bundle.transactions()) == source.kept
        for digest, data in source.attachments.items():
            assert bundle.attachment(digest) == data
        for digest, data in source.models.items():
            assert bundle.model_size(digest) == len(data)
            assert bundle.read_model(digest, 3, 17) == data[3:17]


def test_a_bundle_of_a_sound_ledger_verifies(written: Path) -> None:
    with Bundle(written) as bundle:
        assert list(verify(bundle)) == []


def test_the_same_ledger_gives_the_same_bytes(written: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.dagacfl"
    with Bundle(written) as bundle:
        assert write_bundle(bundle, again) == 6
    assert again.read_bytes() == written.read_bytes()


def test_any_tar_program_lists_a_bundle(written: Path) -> None:
    with tarfile.open(written) as tar:
        names = tar.getnames()
    assert names[:2] == ["manifest.json", "transactions.jsonl"]
    assert len(names) == 2 + 4 + 6  # genesis document and three times evidence; six models


def test_what_is_missing_in_the_ledger_is_left_out_and_named_by_verify(tmp_path: Path) -> None:
    ledger = sound_ledger()
    source = ledger.source()
    del source.models[source.kept[ledger.bob_again].header.model_digest]
    write_bundle(source, tmp_path / "pruned.dagacfl")
    with Bundle(tmp_path / "pruned.dagacfl") as bundle:
        assert [(str(f.kind), f.transaction) for f in verify(bundle)] == [("model-missing", ledger.bob_again)]


def test_a_bundle_of_a_pruned_ledger_says_what_was_pruned(tmp_path: Path) -> None:
    ledger = sound_ledger()
    source = ledger.source()
    for transaction in (ledger.ann, ledger.bob):
        source.prune(transaction)
    write_bundle(source, tmp_path / "pruned.dagacfl")
    last: list[VerifyProgress] = []
    with Bundle(tmp_path / "pruned.dagacfl") as bundle:
        assert list(verify(bundle, progress=last.append)) == []
        assert [bundle.is_pruned(Digest(each)) for each in (*sorted(source.dropped), "0" * 64, "f" * 64)] == [
            True,
            True,
            False,
            False,
        ]
    # cat's average was made of both; the others have parents whose models are here.
    assert (last[-1].models, last[-1].pruned, last[-1].aggregates, last[-1].unprovable) == (4, 2, 2, 1)


@pytest.mark.parametrize(
    "text", ["ab" * 32, "AB" * 32 + "\n", "b" * 64 + "\n" + "a" * 64 + "\n", ("a" * 64 + "\n") * 2]
)
def test_a_list_of_pruned_models_in_another_form_is_refused(tmp_path: Path, text: str) -> None:
    manifest = MANIFEST.replace(b'"transactions": 0', b'"transactions": 9')
    path = a_tar(
        tmp_path / "x", ("manifest.json", manifest), ("transactions.jsonl", b""), ("pruned.txt", text.encode())
    )
    with pytest.raises(BundleError, match=r"pruned\.txt is no list of digests"):
        Bundle(path)


def test_a_list_of_more_pruned_models_than_transactions_is_refused_unread(tmp_path: Path) -> None:
    path = a_tar(
        tmp_path / "x", ("manifest.json", MANIFEST), ("transactions.jsonl", b""), ("pruned.txt", b"ab" * 32 + b"\n")
    )
    with pytest.raises(BundleError, match="more digests than the manifest has transactions"):
        Bundle(path)


class FailingSource(MemorySource):
    def model_size(self, digest: str) -> int | None:
        raise OSError("the disk is gone")


def test_only_the_owner_may_read_a_bundle(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        write_bundle(sound_ledger().source(), tmp_path / "ledger.dagacfl")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "ledger.dagacfl").stat().st_mode) == 0o600


def test_a_failed_export_leaves_the_old_file_and_nothing_beside_it(written: Path) -> None:
    before = written.read_bytes()
    source = sound_ledger().source()
    with pytest.raises(OSError, match="the disk is gone"):
        write_bundle(FailingSource(source.ledger, source.kept, source.models, source.attachments), written)
    assert written.read_bytes() == before
    assert [path.name for path in written.parent.iterdir()] == [written.name]


def a_tar(path: Path, *members: tuple[str, bytes], kind: bytes = tarfile.REGTYPE) -> Path:
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.type, info.size, info.linkname = kind, len(data), "/etc/passwd"
            tar.addfile(info, io.BytesIO(data))
    return path


MANIFEST = json.dumps({"format": "dag-acfl/bundle/v1", "version": "1", "ledger": "ab" * 32, "transactions": 0}).encode()


@pytest.mark.parametrize(
    "name",
    [
        "../evil",
        "/etc/passwd",
        "models/../../evil.safetensors",
        f"models/{'AB' * 32}.safetensors",
        "models/x.safetensors",
        "manifest.json\n",
        "",
    ],
)
def test_a_member_with_another_name_is_refused(tmp_path: Path, name: str) -> None:
    path = a_tar(tmp_path / "x", ("manifest.json", MANIFEST), ("transactions.jsonl", b""), (name, b"x"))
    with pytest.raises(BundleError, match="has no place in a ledger bundle"):
        Bundle(path)


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE])
def test_a_member_that_is_no_plain_file_is_refused(tmp_path: Path, kind: bytes) -> None:
    with pytest.raises(BundleError, match="has no place"):
        Bundle(a_tar(tmp_path / "x", ("manifest.json", b""), kind=kind))


def test_a_member_given_twice_is_refused(tmp_path: Path) -> None:
    path = a_tar(tmp_path / "x", ("manifest.json", MANIFEST), ("manifest.json", MANIFEST))
    with pytest.raises(BundleError, match="stands twice"):
        Bundle(path)


@pytest.mark.parametrize(
    ("manifest", "words"),
    [
        (b"", "not a bundle's manifest"),
        (b"[]", "not a bundle's manifest"),
        (b"[" * 60_000, "not a bundle's manifest"),
        (b" " * 70_000, "at most"),
        (MANIFEST.replace(b"bundle/v1", b"bundle/v9"), "this version reads"),
        (MANIFEST.replace(b'"transactions": 0', b'"transactions": -1'), "names no ledger"),
        (MANIFEST.replace(b"abab", b"ABAB"), "names no ledger"),
    ],
)
def test_a_wrong_manifest_is_refused(tmp_path: Path, manifest: bytes, words: str) -> None:
    path = a_tar(tmp_path / "x", ("manifest.json", manifest), ("transactions.jsonl", b""))
    with pytest.raises(BundleError, match=words):
        Bundle(path)


@pytest.mark.parametrize(
    "line",
    [
        b"{}\n",
        b"[1]\n",
        b"no json\n",
        b"x" * 300_000 + b"\n",
        b'{"id":1,"header":"","author_signature":null,"receipt":""}\n',
        b'{"id":"a","header":"zz","author_signature":null,"receipt":""}\n',
        b'{"id":"a","header":"00","author_signature":null,"receipt":""}',
    ],
)
def test_a_line_that_is_no_transaction_is_refused(tmp_path: Path, line: bytes) -> None:
    path = a_tar(tmp_path / "x", ("manifest.json", MANIFEST), ("transactions.jsonl", line))
    with Bundle(path) as bundle, pytest.raises(BundleError, match="line 1"):
        list(bundle.transactions())


def test_fewer_transactions_than_the_manifest_says_are_refused(tmp_path: Path) -> None:
    manifest = MANIFEST.replace(b'"transactions": 0', b'"transactions": 3')
    path = a_tar(tmp_path / "x", ("manifest.json", manifest), ("transactions.jsonl", b""))
    with Bundle(path) as bundle, pytest.raises(BundleError, match="has 0 transactions, the manifest says 3"):
        list(bundle.transactions())


def test_a_bundle_cut_off_anywhere_is_refused_or_named_never_a_crash(written: Path, tmp_path: Path) -> None:
    data = written.read_bytes()
    cut = tmp_path / "cut.dagacfl"
    for length in range(0, len(data) - 10_240, 509):
        cut.write_bytes(data[:length])
        with pytest.raises(BundleError), Bundle(cut) as bundle:
            list(verify(bundle))


def is_noticed(path: Path) -> bool:
    try:
        with Bundle(path) as bundle:
            return list(verify(bundle)) != []
    except BundleError:  # a hexadecimal digit became another letter: no transaction any more
        return True


def test_every_single_flipped_byte_of_content_is_found(written: Path, tmp_path: Path) -> None:
    data = bytearray(written.read_bytes())
    damaged = tmp_path / "damaged.dagacfl"
    source = sound_ledger().source()
    # Bytes of models, attachments and lines; padding between members and after the end is no content.
    needles = [*source.models.values(), *source.attachments.values()]
    needles += [transaction.header_bytes.hex().encode() for transaction in source.kept.values()]
    for needle in needles:
        start = data.index(needle)
        for at in range(start, start + len(needle), 29):
            copy = bytearray(data)
            copy[at] ^= 1
            damaged.write_bytes(copy)
            assert is_noticed(damaged), f"byte {at} changed and nobody noticed"


def test_a_digest_that_nobody_knows_is_absent(written: Path) -> None:
    with Bundle(written) as bundle:
        assert bundle.attachment(digest_of(b"?")) is None
        assert bundle.model_size(digest_of(b"?")) is None


def test_the_checkpoints_by_which_a_server_joined_are_read_back(tmp_path: Path) -> None:
    source = sound_ledger().source()
    write_bundle(source, tmp_path / "plain.dagacfl")
    source.joined_by = [b"one", b"", b"three"]
    write_bundle(source, tmp_path / "joined.dagacfl")
    with Bundle(tmp_path / "plain.dagacfl") as plain, Bundle(tmp_path / "joined.dagacfl") as joined:
        assert (plain.checkpoints(), joined.checkpoints()) == ([], source.joined_by)
