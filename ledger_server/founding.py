"""Found a ledger: write its genesis into an empty store."""

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fl_core.dag.building import build_genesis
from fl_core.dag.figures import Figures
from fl_core.dag.genesis import Genesis, check_supported
from fl_core.dag.transaction import Transaction
from fl_core.models import Buffer, check_model, model_norm
from fl_core.types import digest_of
from ledger_server.store.journal import Store
from ledger_server.store.stored import StoredTransaction


def create_ledger(store: Store, genesis: Genesis, model: Buffer, *, key: Ed25519PrivateKey, now_ms: int) -> Transaction:
    """Write a new ledger's genesis into an empty store.

    Args:
        store: An empty store.
        genesis: The rules.
        model: The initial model, canonical bytes of the genesis layout.
        key: The founder's key: author and issuer of the genesis transaction.
        now_ms: Creation time, milliseconds since 1970 UTC.

    Raises:
        ModelError: The model does not fit the layout.
        LedgerExistsError: The store holds a ledger.
    """
    check_supported(genesis)
    vector = check_model(genesis.layout, model, max_abs=genesis.bounds.max_abs_value)
    unsigned = build_genesis(genesis, key=key, model_digest=digest_of(model), created_at_ms=now_ms)
    transaction = unsigned.issue(key, author_signature=unsigned.sign_as_author(key), received_at_ms=now_ms)
    first = StoredTransaction(0, transaction, Figures(model_norm(vector)).encode(), now_ms)
    store.create(first, document=genesis.document, model=model)
    return transaction
