"""Verification names each fault once, by kind and transaction, and finds nothing in a sound ledger."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_core.aggregation import AGGREGATORS, FedAvg
from fl_core.dag.acts import Act, ActKind, sign_act, sign_rotation
from fl_core.dag.figures import Figures, Step
from fl_core.dag.genesis import Component, Genesis, Member
from fl_core.dag.signature import public_key_of
from fl_core.dag.transaction import Transaction
from fl_core.errors import ParentsError, TransactionInvalidError
from fl_core.models import ModelLayout, TensorSpec, encode_flat, flat
from fl_core.selection.evidence import parse_evidence
from fl_core.selection.parents import check_parents
from fl_core.stored_models import StoredModel
from fl_core.types import AuthorId, Digest, TxId, digest_of
from fl_core.verify import FaultKind, VerifyProgress, verify
from tests.builders import ISSUER, TinyLedger, key_from_seed, make_genesis, model, seal
from tests.checkpoints import checkpoint_of
from tests.sources import Author, MemorySource, SoundLedger, sound_ledger


def found(source: MemorySource) -> set[tuple[str, str | None]]:
    return {(str(finding.kind), finding.transaction) for finding in verify(source)}


def flip(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def test_nothing_is_wrong_with_a_sound_ledger() -> None:
    seen: list[VerifyProgress] = []
    assert list(verify(sound_ledger().source(), progress=seen.append)) == []
    # Six transactions with a model each; three of them were trained on an average of their parents.
    assert seen[-1] == VerifyProgress(checked=6, total=6, models=6, aggregates=3)


def test_the_order_in_which_transactions_come_does_not_matter() -> None:
    source = sound_ledger().source()
    source.kept = dict(reversed(source.kept.items()))
    assert found(source) == set()


@dataclass(frozen=True)
class Damage:
    """One way to damage a sound copy, and the only finding that must follow."""

    kind: str
    apply: Callable[[SoundLedger, MemorySource], str | None]


def header_byte(ledger: SoundLedger, source: MemorySource) -> str:
    old = source.kept[ledger.cat]
    source.kept[ledger.cat] = replace(old, header_bytes=flip(old.header_bytes, 97))  # num_examples
    return ledger.cat


def header_end(ledger: SoundLedger, source: MemorySource) -> str:
    old = source.kept[ledger.cat]
    source.kept[ledger.cat] = replace(old, header_bytes=old.header_bytes[:-1])
    return ledger.cat


def author_signature(ledger: SoundLedger, source: MemorySource) -> str:
    old = source.kept[ledger.ann]
    assert old.author_signature is not None
    source.kept[ledger.ann] = replace(old, author_signature=flip(old.author_signature, 5))
    return ledger.ann


def author_signature_gone(ledger: SoundLedger, source: MemorySource) -> str:
    source.kept[ledger.ann] = replace(source.kept[ledger.ann], author_signature=None)
    return ledger.ann


def issuer_signature(ledger: SoundLedger, source: MemorySource) -> str:
    old = source.kept[ledger.bob]
    source.kept[ledger.bob] = replace(old, receipt=replace(old.receipt, signature=flip(old.receipt.signature, 40)))
    return ledger.bob


def transaction_gone(ledger: SoundLedger, source: MemorySource) -> str:
    del source.kept[ledger.ann_again]
    return ledger.bob_again


def model_value(ledger: SoundLedger, source: MemorySource) -> str:
    digest = source.kept[ledger.cat].header.model_digest
    source.models[digest] = flip(source.models[digest], len(source.models[digest]) - 3)
    return ledger.cat


def model_longer(ledger: SoundLedger, source: MemorySource) -> str:
    digest = source.kept[ledger.cat].header.model_digest
    source.models[digest] += b"\0"
    return ledger.cat


def model_gone(ledger: SoundLedger, source: MemorySource) -> str:
    del source.models[source.kept[ledger.bob_again].header.model_digest]
    return ledger.bob_again


def evidence_byte(ledger: SoundLedger, source: MemorySource) -> str:
    digest = source.kept[ledger.cat].header.attachment_digest
    source.attachments[digest] = flip(source.attachments[digest], 30)
    return ledger.cat


def evidence_gone(ledger: SoundLedger, source: MemorySource) -> str:
    del source.attachments[source.kept[ledger.cat].header.attachment_digest]
    return ledger.cat


DAMAGES = {
    "a byte of a header": Damage("header-tampered", header_byte),
    "a header cut off": Damage("header-tampered", header_end),
    "a byte of an author's signature": Damage("signature-invalid", author_signature),
    "an author's signature gone": Damage("signature-invalid", author_signature_gone),
    "a byte of an issuer's signature": Damage("signature-invalid", issuer_signature),
    "a transaction gone": Damage("parent-missing", transaction_gone),
    "a value of a model": Damage("model-corrupt", model_value),
    "a byte more in a model": Damage("model-corrupt", model_longer),
    "a model gone": Damage("model-missing", model_gone),
    "a byte of evidence": Damage("attachment-corrupt", evidence_byte),
    "evidence gone": Damage("attachment-missing", evidence_gone),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_each_damage_is_named_once_and_rightly(damage: Damage) -> None:
    ledger = sound_ledger()
    source = ledger.source()
    transaction = damage.apply(ledger, source)
    assert found(source) == {(damage.kind, transaction)}


def test_a_pruned_model_is_counted_and_no_fault_and_the_averages_of_it_are_counted_too() -> None:
    ledger = sound_ledger()
    source = ledger.source()
    source.prune(ledger.ann)
    seen: list[VerifyProgress] = []
    assert list(verify(source, progress=seen.append)) == []
    # cat was trained on the mean of ann and bob; the averages of the other two do not have ann's first model.
    assert seen[-1] == VerifyProgress(checked=6, total=6, models=5, aggregates=2, pruned=1, unprovable=1)


@pytest.mark.parametrize("damage", ["a byte of a header", "an author's signature gone", "a byte of evidence"])
def test_a_fault_is_named_although_everything_that_may_be_pruned_is(damage: str) -> None:
    ledger = sound_ledger()
    source = ledger.source()
    for transaction in (ledger.ann, ledger.bob):
        source.prune(transaction)
    transaction_ = DAMAGES[damage].apply(ledger, source)
    assert found(source) == {(DAMAGES[damage].kind, transaction_)}


def test_an_authors_newest_that_is_said_to_be_pruned_is_a_warning() -> None:
    ledger = sound_ledger()
    source = ledger.source()
    source.prune(ledger.bob_again)
    assert found(source) == {("newest-pruned", ledger.bob_again)}
    assert FaultKind.NEWEST_PRUNED.is_warning


def test_genesis_cannot_be_said_to_be_pruned() -> None:
    source = sound_ledger().source()
    source.prune(source.ledger)
    assert ("model-missing", source.ledger) in found(source)


def test_a_ledger_given_under_another_id_is_named() -> None:
    source = sound_ledger().source()
    genesis = source.ledger
    source.ledger = "ab" * 32
    assert found(source) == {("ledger-mismatch", genesis)}


def test_without_genesis_its_absence_and_its_orphans_are_named() -> None:
    ledger = sound_ledger()
    source = ledger.source()
    del source.kept[source.ledger]
    assert found(source) == {
        ("genesis-missing", None),
        ("parent-missing", ledger.ann),
        ("parent-missing", ledger.bob),
    }


def test_a_second_genesis_is_named() -> None:
    ledger = sound_ledger()
    other = TinyLedger(make_genesis(name="other")).genesis_transaction
    source = ledger.source()
    source.kept[other.id] = other
    assert found(source) == {("genesis-duplicate", other.id)}


def test_a_lost_genesis_document_is_named() -> None:
    ledger = sound_ledger()
    source = ledger.source()
    del source.attachments[ledger.tiny.genesis.digest]
    assert found(source) == {("attachment-missing", ledger.tiny.genesis_id)}


def test_a_genesis_document_that_breaks_its_rules_is_named() -> None:
    tiny = TinyLedger()
    document = tiny.genesis.document.replace(b'"max_parents":64', b'"max_parents":9999')
    header = replace(tiny.genesis_transaction.header, attachment_digest=digest_of(document))
    transaction = seal(header, author_key=ISSUER)
    source = MemorySource(
        transaction.id, {transaction.id: transaction}, dict(tiny.models), {digest_of(document): document}
    )
    assert found(source) == {("genesis-invalid", transaction.id)}


def forged_evidence(ledger: SoundLedger, change: Callable[[bytes], bytes]) -> tuple[MemorySource, TxId]:
    """The ledger with a sixth, properly signed transaction, whose evidence was changed before signing."""
    author = Author(ledger.tiny, "dan")
    honest = author.evidence([ledger.bob_again]).encode()
    encoded = change(honest)
    assert encoded != honest
    transaction = ledger.tiny.draft("dan", [ledger.bob_again], model(0.5, 0.5, 0.5), attachment=encoded)
    source = ledger.source()
    source.kept[transaction.id] = transaction
    source.attachments[digest_of(encoded)] = encoded
    source.models[digest_of(model(0.5, 0.5, 0.5))] = model(0.5, 0.5, 0.5)
    return source, transaction.id


@pytest.mark.parametrize(
    ("kind", "old", "new"),
    [
        ("evidence-malformed", b'"cut":1', b'"cut": 1'),
        ("evidence-malformed", b'"source":"parents"', b'"source":"magic"'),
        ("evidence-mismatch", b'"cut":1', b'"cut":2'),
        ("evidence-mismatch", b'"selected":true', b'"selected":false'),
        ("evidence-mismatch", b'"size":', b'"size":1'),
    ],
)
def test_evidence_that_disagrees_with_its_transaction_is_named(kind: str, old: bytes, new: bytes) -> None:
    source, transaction = forged_evidence(sound_ledger(), lambda data: data.replace(old, new))
    assert found(source) == {(kind, transaction)}


def test_evidence_with_other_parents_is_named() -> None:
    ledger = sound_ledger()
    source, transaction = forged_evidence(
        ledger, lambda data: data.replace(ledger.bob_again.encode(), ledger.ann_again.encode())
    )
    assert found(source) == {("evidence-mismatch", transaction)}


def test_an_aggregate_that_is_not_the_parents_mean_is_named() -> None:
    ledger = sound_ledger()
    author = Author(ledger.tiny, "dan")
    lie = author.evidence([ledger.ann_again, ledger.bob_again], aggregate=digest_of(b"not the mean"))
    transaction = author.publish(lie, model(0.5, 0.25, 0.5))
    assert found(ledger.source()) == {("aggregate-mismatch", transaction)}


def test_an_altered_ancestor_hides_no_other_fault() -> None:
    ledger = sound_ledger()
    author = Author(ledger.tiny, "dan")
    lie = author.evidence([ledger.ann_again, ledger.bob_again], aggregate=digest_of(b"not the mean"))
    liar = author.publish(lie, model(0.5, 0.25, 0.5))
    source = ledger.source()
    huge = ledger.tiny.draft("eve", [ledger.bob_again], model(1e10))
    source.kept[huge.id], source.models[digest_of(model(1e10))] = huge, model(1e10)
    header_byte(ledger, source)  # cat's, of whom all others descend
    assert found(source) == {("header-tampered", ledger.cat), ("aggregate-mismatch", liar), ("model-norm", huge.id)}


def test_keeping_ones_own_model_under_another_digest_is_named() -> None:
    ledger = sound_ledger()
    author = Author(ledger.tiny, "bob")
    evidence = author.evidence([ledger.bob_again], reference=ledger.bob_again)
    own = replace(evidence, selection=replace(evidence.selection, source="own", cut=0, candidates=()))
    honest = author.publish(own, model(0.5, 0.25, 0.5))
    assert found(ledger.source()) == set()
    lie = replace(own, reference=honest, aggregate=digest_of(b"another"))
    lie = replace(
        lie,
        selection=replace(own.selection, parents=(honest,)),
        reference_model=ledger.tiny.transactions[honest].header.model_digest,
    )
    transaction = author.publish(lie, model(0.5, 0.25, 0.25))
    assert found(ledger.source()) == {("evidence-mismatch", transaction)}


def test_keeping_ones_own_model_upon_others_updates_is_named_and_refused() -> None:
    ledger = sound_ledger()
    author = Author(ledger.tiny, "eve")
    for parents in ([ledger.bob_again], [ledger.ann_again, ledger.bob_again]):
        evidence = author.evidence(parents)
        own = replace(evidence.selection, source="own", cut=0, candidates=())
        forged = replace(evidence, selection=own, aggregate=evidence.reference_model)
        transaction = author.publish(forged, model(0.5, 0.5, len(parents)))
        source = ledger.source()
        assert found(source) == {("evidence-mismatch", transaction)}
        del ledger.tiny.transactions[transaction]
    with pytest.raises(ParentsError, match="took nothing"):
        check_parents(source.kept[transaction].header, forged)


def test_ones_own_model_under_a_former_name_stays_ones_own_though_another_rotation_was_signed_since() -> None:
    ledger = sound_ledger()
    author, (bob, dan, eve) = Author(ledger.tiny, "dan"), map(ledger.tiny.key, ("bob", "dan", "eve"))
    evidence = author.evidence([ledger.bob_again])
    own = replace(evidence.selection, source="own", cut=0, candidates=())
    transaction = author.publish(replace(evidence, selection=own, aggregate=evidence.reference_model), model(0.5))
    source = ledger.source()
    assert found(source) == {("evidence-mismatch", transaction)}
    for successors in ([dan], [dan, eve]):
        source.decided = [sign_rotation(bob, key, ledger=ledger.tiny.genesis_id) for key in successors]
        assert found(source) == set()


def test_candidates_that_never_came_are_a_warning() -> None:
    ledger = sound_ledger()
    author = Author(ledger.tiny, "dan")
    evidence = author.evidence([ledger.bob_again])
    unseen = replace(evidence.selection.candidates[0], transaction=TxId("ab" * 32), selected=False)
    selection = replace(evidence.selection, candidates=(*evidence.selection.candidates, unseen))
    transaction = author.publish(replace(evidence, selection=selection), model(0.5, 0.25, 0.5))
    assert found(ledger.source()) == {("evidence-unpublished", transaction)}
    assert FaultKind.EVIDENCE_UNPUBLISHED.is_warning
    assert not FaultKind.EVIDENCE_MISMATCH.is_warning


def test_one_sequence_number_used_twice_is_a_warning_on_the_later_one() -> None:
    ledger = sound_ledger()
    twin = ledger.tiny.draft("ann", [ledger.bob_again], model(0.5, 0.5), sequence=0)
    source = ledger.source()
    source.kept[twin.id] = twin
    source.models[digest_of(model(0.5, 0.5))] = model(0.5, 0.5)
    assert found(source) == {("duplicate-sequence", twin.id)}


def test_a_step_beyond_the_bound_is_named() -> None:
    ledger = sound_ledger()
    huge = model(1e5)  # genesis's norm is 2, and no step here is longer than ten thousand times that
    transaction = ledger.tiny.draft("dan", [ledger.bob_again], huge)
    source = ledger.source()
    source.kept[transaction.id] = transaction
    source.models[digest_of(huge)] = huge
    assert found(source) == {("step-too-long", transaction.id)}


def test_a_model_that_is_not_finite_is_named() -> None:
    ledger = sound_ledger()
    bad = model(float("nan"))
    transaction = ledger.tiny.draft("dan", [ledger.bob_again], bad)
    source = ledger.source()
    source.kept[transaction.id] = transaction
    source.models[digest_of(bad)] = bad
    assert found(source) == {("model-invalid", transaction.id)}


def test_a_signed_header_that_breaks_the_rules_is_named() -> None:
    ledger = sound_ledger()
    trained = model(0.5, 0.5)
    transaction = ledger.tiny.draft("dan", [ledger.bob_again], trained, num_examples=0)
    source = ledger.source()
    source.kept[transaction.id] = transaction
    source.models[digest_of(trained)] = trained
    assert found(source) == {("header-rule", transaction.id)}


def test_an_aggregator_of_a_later_release_is_a_warning() -> None:
    genesis: Genesis = replace(make_genesis(), aggregator=Component("krum-2030"))
    with pytest.MonkeyPatch.context() as later_release:
        later_release.setattr(AGGREGATORS, "_entries", {"krum-2030": FedAvg})
        source = sound_ledger(TinyLedger(genesis)).source()
    assert found(source) == {("aggregate-unverified", None)}


def test_a_policy_of_signatures_holds_for_old_transactions_too() -> None:
    ledger = sound_ledger(TinyLedger(make_genesis(keys_only=True)))
    old = ledger.tiny.transactions[ledger.bob_again].header
    anonymous = seal(replace(old, author="hash:" + "1" * 64, attachment_digest=Digest("0" * 64)))  # type: ignore[arg-type]
    source = ledger.source()
    source.kept[anonymous.id] = anonymous
    assert found(source) == {("signature-invalid", anonymous.id)}


def test_an_author_that_was_never_listed_is_a_warning() -> None:
    ledger = sound_ledger(TinyLedger(make_genesis(authors="listed")))
    findings = list(verify(ledger.source()))
    assert {finding.kind.value for finding in findings} == {"author-unlisted"}
    assert len(findings) == len(ledger.tiny.ledger.graph.authors())
    assert all(f"the server {public_key_of(ISSUER)} took its updates" in finding.message for finding in findings)


@dataclass
class Twice(MemorySource):
    """Gives one transaction a second time, perhaps with other signatures."""

    again: Transaction | None = None

    def transactions(self) -> Iterator[tuple[str, Transaction]]:
        yield from self.kept.items()
        if self.again is not None:
            yield self.again.id, self.again


def test_a_transaction_given_twice_is_a_warning() -> None:
    ledger = sound_ledger()
    source = ledger.source()
    twice = Twice(source.ledger, source.kept, source.models, source.attachments, again=source.kept[ledger.cat])
    assert found(twice) == {("duplicate-transaction", ledger.cat)}


@pytest.mark.parametrize("content", [b"[]", b"{}", b"\xff", b'{"format":[]}', b"[" * 100_000])
def test_evidence_of_any_shape_is_malformed_and_no_crash(content: bytes) -> None:
    with pytest.raises(TransactionInvalidError):
        parse_evidence(content)
    source, transaction = forged_evidence(sound_ledger(), lambda _: content)
    assert found(source) == {("evidence-malformed", transaction)}


def test_evidence_whose_ids_or_words_are_no_text_is_malformed() -> None:
    ids = [(b'"update":null', b'"update":[]'), (b'"update":null', b'"update":{}')]
    for old, new in (*ids, (b'"rule":"', b'"rule":"\\ud800')):
        source, transaction = forged_evidence(sound_ledger(), lambda d, o=old, n=new: d.replace(o, n))  # type: ignore[misc]
        assert found(source) == {("evidence-malformed", transaction)}


def test_a_stored_model_reads_any_stretch_of_a_layout_with_several_dtypes() -> None:
    layout = ModelLayout.of(
        [TensorSpec("a", "F32", (3,)), TensorSpec("b", "BF16", (4,)), TensorSpec("c", "F16", (2, 2))]
    )
    data = encode_flat(layout, np.arange(1, 12, dtype=np.float32))
    digest = digest_of(data)
    source = MemorySource("", {}, {digest: data}, {})
    stored = StoredModel(source, Digest(digest), layout)
    whole = flat(layout, data)
    assert stored.size == 11
    for start in range(11):
        for stop in range(start + 1, 12):
            np.testing.assert_array_equal(stored.read(start, stop), whole[start:stop])


FOUNDER = key_from_seed(77)


def ruled() -> SoundLedger:
    """The sound ledger, with a founder who can decide something."""
    return sound_ledger(TinyLedger(replace(make_genesis(), members=(Member(public_key_of(FOUNDER), "founder"),))))


def quarantine(ledger: TxId, *, number: int = 1) -> Act:
    previous = TxId(("0" if number == 1 else "9") * 64)
    return Act(
        ledger=ledger,
        number=number,
        previous=previous,
        created_at_ms=1,
        kind=ActKind.QUARANTINE,
        subject=f"update:{ledger}",
    )


def test_acts_are_proven_and_counted() -> None:
    ledger = ruled()
    source = ledger.source()
    act = quarantine(ledger.tiny.genesis_id)
    source.decided = [sign_act(act, FOUNDER), sign_act(quarantine(ledger.tiny.genesis_id, number=2), FOUNDER)]
    seen: list[VerifyProgress] = []
    assert list(verify(source, progress=seen.append)) == []
    assert seen[-1].acts == 1, "the second follows one that is not here"


@pytest.mark.parametrize("damage", ["signature", "ledger", "bytes"])
def test_bad_act_is_found(damage: str) -> None:
    ledger = ruled()
    source = ledger.source()
    signed = sign_act(quarantine(ledger.tiny.genesis_id), FOUNDER)
    if damage == "signature":
        signed = replace(signed, signatures={public_key_of(FOUNDER): bytes(64)})
    elif damage == "ledger":
        signed = sign_act(quarantine(TxId("2e" * 32)), FOUNDER)
    else:
        signed = replace(signed, act_bytes=signed.act_bytes + b"\0")
    source.decided = [signed]
    assert found(source) == {("act-invalid", None)}


def test_authors_without_a_key_are_named() -> None:
    ledger = sound_ledger()
    old = ledger.tiny.transactions[ledger.bob_again].header
    author = AuthorId("hash:" + "1" * 64)
    vouched = seal(replace(old, author=author, attachment_digest=Digest("0" * 64)))
    source = ledger.source()
    source.kept[vouched.id] = vouched
    seen: list[VerifyProgress] = []
    assert list(verify(source, progress=seen.append)) == []
    assert seen[-1].vouched == {author}


# -- checkpoints by which the source joined ---------------------------------------------------------------


def test_pruned_models_below_a_member_s_checkpoint_are_counted_apart() -> None:
    ledger = ruled()
    source = ledger.source()
    source.prune(ledger.ann)
    source.prune(ledger.cat)
    source.joined_by = [checkpoint_of(ledger.tiny, [ledger.ann], key=FOUNDER).data]
    seen: list[VerifyProgress] = []
    assert list(verify(source, progress=seen.append)) == [
        finding for finding in verify(source) if finding.kind is FaultKind.NEWEST_PRUNED
    ]
    assert (seen[-1].pruned, seen[-1].vouched_models) == (2, 1)


def test_an_act_that_only_a_checkpoint_puts_into_effect_is_found() -> None:
    ledger = ruled()
    source = ledger.source()
    act = Act(
        ledger=ledger.tiny.genesis_id, number=1, created_at_ms=5, kind=ActKind.LIST_AUTHOR, subject="hash:" + 64 * "5"
    )
    source.decided = [sign_act(act, key_from_seed(99))]
    acts = [(1, act.id), (2, TxId("2" * 64))]
    source.joined_by = [checkpoint_of(ledger.tiny, [], key=FOUNDER, acts=acts).data]
    assert found(source) == {("act-invalid", None)}


@pytest.mark.parametrize(
    ("damage", "kind"),
    [("cut", "checkpoint-invalid"), ("ledger", "checkpoint-invalid"), ("stranger", "checkpoint-foreign")],
)
def test_a_checkpoint_that_vouches_for_nothing_is_found(damage: str, kind: str) -> None:
    ledger = ruled()
    source = ledger.source()
    other = TinyLedger() if damage == "ledger" else ledger.tiny
    signer = key_from_seed(99) if damage == "stranger" else FOUNDER
    data = checkpoint_of(other, [], key=signer).data
    source.joined_by = [data[:-1] if damage == "cut" else data]
    assert found(source) == {(kind, None)}


@pytest.mark.parametrize(
    "figures",
    [
        Figures(math.sqrt(3), Step(1.0, (0.0, 1.0)), (0.5, 0.5)),
        Figures(math.sqrt(2), Step(1.5, (0.0, 1.0)), (0.5, 0.5)),
        Figures(math.sqrt(2), Step(1.0, (1.0, 0.0)), (0.5, 0.5)),
        Figures(math.sqrt(2), Step(1.0, (0.0, 1.0)), (0.75, 0.25)),
        Figures(math.sqrt(2), Step(1.0, (0.0, 1.0)), ()),
    ],
    ids=["norm", "step", "step by tensor", "shares", "no shares"],
)
def test_figures_that_are_not_those_of_the_models_are_named(figures: Figures) -> None:
    tiny = TinyLedger()
    ann, bob = (tiny.publish(name, [tiny.genesis_id], model(*values)) for name, values in [("ann", [2]), ("bob", [0])])
    cat = tiny.publish("cat", [ann, bob], model(1, 1))
    source = MemorySource.of(tiny)
    for recorded, faults in ((Figures(math.sqrt(2), Step(1.0, (0.0, 1.0)), (0.5, 0.5)), set()), (figures, {cat})):
        source.recorded = {cat: recorded.encode()}
        assert found(source) == {("figures-mismatch", each) for each in faults}


def test_a_step_from_a_model_that_was_pruned_is_not_asked_for() -> None:
    tiny = TinyLedger()
    ann = tiny.publish("ann", [tiny.genesis_id], model(2))
    bob = tiny.publish("bob", [ann], model(3))
    source = MemorySource.of(tiny)
    source.dropped = {digest_of(source.models.pop(digest_of(model(2))) or b"")}
    source.recorded = {bob: Figures(3.0, Step(77.0, (77.0, 0.0)), (1.0,)).encode()}
    assert "figures-mismatch" not in {kind for kind, _ in found(source)}


def test_figures_that_cannot_be_read_are_named() -> None:
    tiny = TinyLedger()
    ann = tiny.publish("ann", [tiny.genesis_id], model(2))
    source = MemorySource.of(tiny)
    source.recorded = {ann: b"\x07"}
    assert found(source) == {("figures-mismatch", ann)}


# -- evidence that is archived ------------------------------------------------------------------------------------


def moved(source: MemorySource, digests: set[Digest]) -> MemorySource:
    """An archive of a ledger's evidence, which is taken out of the ledger."""
    archive = replace(source, attachments=dict(source.attachments), is_archive=True)
    for digest in digests:
        del source.attachments[digest]
    source.away |= digests
    return archive


@given(runs=st.lists(st.sets(st.integers(0, 2)), max_size=3), damage=st.sampled_from([None, *DAMAGES.values()]))
def test_beside_its_archives_a_ledger_is_proven_as_before(runs: list[set[int]], damage: Damage | None) -> None:
    ledger = sound_ledger()
    source = ledger.source()
    evidence = [source.kept[each].header.attachment_digest for each in (ledger.cat, ledger.ann_again, ledger.bob_again)]
    if damage is not None:
        damage.apply(ledger, source)
    before, beside, alone = list[VerifyProgress](), list[VerifyProgress](), list[VerifyProgress]()
    findings = list(verify(source, progress=before.append))
    archives = [moved(source, {evidence[each] for each in run} & source.attachments.keys()) for run in runs]
    assert list(verify(source, archives=archives, progress=beside.append)) == findings
    assert beside == before
    assert set(verify(source, progress=alone.append)) <= set(findings), "what is not here shows no fault"
    if damage is None:
        assert alone[-1].archived == len(source.away)


def test_evidence_that_was_changed_in_the_archive_is_found_there() -> None:
    ledger = sound_ledger()
    source = ledger.source()
    digest = source.kept[ledger.cat].header.attachment_digest
    archive = moved(source, {digest})
    archive.attachments[digest] = b"{}"
    findings = list(verify(source, archives=[archive]))
    assert [(each.kind, each.transaction) for each in findings] == [(FaultKind.ATTACHMENT_CORRUPT, ledger.cat)]


def test_the_genesis_document_cannot_be_said_to_be_archived() -> None:
    source = sound_ledger().source()
    moved(source, {source.kept[source.ledger].header.attachment_digest})
    assert (str(FaultKind.ATTACHMENT_MISSING), source.ledger) in found(source)


def test_an_archive_is_the_beginning_of_its_ledger_and_no_other() -> None:
    source, other = sound_ledger().source(), sound_ledger().source()
    beginning = replace(source, kept=dict(list(source.kept.items())[:3]), is_archive=True)
    assert list(verify(source, archives=[beginning])) == []
    longer = list(verify(beginning, archives=[source]))
    assert [each.message for each in longer] == ["an archive holds 3 transactions that are not here"]
    other.ledger = "f" * 64
    assert [each.kind for each in verify(source, archives=[other])] == [FaultKind.ARCHIVE_MISMATCH]


def test_in_an_archive_an_author_s_newest_may_lack_its_model() -> None:
    ledger = sound_ledger()
    source = ledger.source()
    source.prune(ledger.bob_again)
    assert [each.kind for each in verify(source)] == [FaultKind.NEWEST_PRUNED]
    assert list(verify(replace(source, is_archive=True))) == []
