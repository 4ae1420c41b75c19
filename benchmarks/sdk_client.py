"""One device of the service benchmark that uses the SDK, as a user's program does.

The counterpart of Flower's ``NumPyClient``: arrays come in, arrays go out, a key signs. It does all that
``LedgerClient`` does: downloads are hashed and compared with their digest, headers are built and signed here, receipts
are verified. Speaks the lines of ``device_client.py``.

    python benchmarks/sdk_client.py --port 8900 --seed 3
"""

import argparse
import time

import harness  # noqa: F401  # pins the threads before NumPy loads
import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from device_client import NUM_EXAMPLES, perturbation, speak
from numpy.typing import NDArray

from fl_client import LedgerClient
from fl_core.models import decode_model, encode_model


class SdkDevice:
    """A client with a key, its arrays, and its newest transaction."""

    def __init__(self, port: int, seed: int) -> None:
        self.seed, self.rounds = seed, 0
        self.client = LedgerClient(f"http://127.0.0.1:{port}", key=Ed25519PrivateKey.generate(), cache_bytes=0)
        self.layout = self.client.genesis().genesis.layout
        self.arrays = decode_model(self.layout, self.client.genesis_model())
        self.newest: str | None = None
        self.spent_s: dict[str, float] = {}

    def round(self) -> None:
        self.rounds += 1
        start = time.perf_counter()
        if self.newest is None:
            self.train()
            selection = self.client.select(model=encode_model(self.layout, self.arrays))
        else:
            selection = self.client.select(transaction=self.newest)
        selected = time.perf_counter()
        if selection.source != "own":
            self.arrays = decode_model(self.layout, self.client.download(selection.aggregate.digest))
        fetched = time.perf_counter()
        self.train()
        model = encode_model(self.layout, self.arrays)
        self.newest = self.client.publish(model, selection=selection, num_examples=NUM_EXAMPLES).id
        self.spent_s = {
            "select": selected - start,
            "fetch": fetched - selected,
            "publish": time.perf_counter() - fetched,
        }

    def train(self) -> None:
        """Change eight values of the last tensor, so that the model is other bytes than any before it."""
        name = self.layout.tensors[-1].name
        changed: NDArray[np.float32] = self.arrays[name].copy()
        changed.reshape(-1)[-8:] = np.frombuffer(perturbation(self.seed, self.rounds), np.float32)
        self.arrays = {**self.arrays, name: changed}


def main() -> None:
    parser = argparse.ArgumentParser(description="One device of the service benchmark, by the SDK.")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True, help="0 to 15: tells this device's models from the others'")
    options = parser.parse_args()
    speak(SdkDevice(options.port, options.seed))


if __name__ == "__main__":
    main()
