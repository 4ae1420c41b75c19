/** What tests/javascript/client_in_chromium.py asks of a browser: the query says what, `/report` is told how it went. */
import { indexedDb, LedgerClient } from "../../src/index.js";
import { mlp } from "../../src/mlp.js";
import { conform } from "./conformance.js";
import { take } from "./steps.js";

const query = Object.fromEntries(new URLSearchParams(location.search));

/** @type {Record<string, () => Promise<unknown>>} */
const tasks = {
  conformance: async () => ({
    isSecure: isSecureContext,
    hasSubtle: crypto.subtle !== undefined,
    held: await conform(await (await fetch("/docs/conformance/v1.json")).text()),
  }),
  async steps() {
    const storage = await indexedDb();
    return take(query.server ?? location.origin, {
      storage,
      target: Number(query.target),
      steps: Number(query.steps),
      token: query.token,
    });
  },
  async event() {
    const client = new LedgerClient(location.origin);
    const first = client.events().next();
    await take(location.origin, { storage: await indexedDb("another"), target: 1, steps: 1 });
    return (await first).value?.transaction;
  },
  async worker() {
    const trainX = Float32Array.of(0, 0, 0, 1, 1, 0, 1, 1),
      trainY = Uint8Array.of(0, 1, 1, 0);
    const trainer = mlp({
      layers: [2, 8, 2],
      trainX,
      trainY,
      testX: trainX,
      testY: trainY,
      batchSize: 4,
      learningRate: 0.5,
      seed: 1,
    });
    const { arrays } = await trainer.train(await trainer.initialArrays(), { epochs: 2000, hints: {} });
    return trainer.evaluate(arrays);
  },
};

let report;
try {
  report = { result: await tasks[query.task]() };
} catch (error) {
  report = { error: String(/** @type {Error} */ (error).stack ?? error) };
}
await fetch("/report", { method: "POST", body: JSON.stringify(report) });
