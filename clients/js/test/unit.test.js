import assert from "node:assert/strict";
import { createHash, createPrivateKey, createPublicKey, randomBytes, sign as signed } from "node:crypto";
import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import * as own from "../src/ed25519.js";
import { folder } from "../src/folder.js";
import { decodeModel, encodeModel, layoutOf } from "../src/model.js";
import { mlp } from "../src/mlp.js";
import { Mlp } from "../src/perceptron.js";
import { sha256, sha512 } from "../src/sha2.js";

test("our SHA-2 is the platform's, at every length around a block's end", () => {
  for (let length = 0; length < 300; length++) {
    const data = randomBytes(length);
    assert.equal(Buffer.from(sha256(data)).toString("hex"), createHash("sha256").update(data).digest("hex"));
    assert.equal(Buffer.from(sha512(data)).toString("hex"), createHash("sha512").update(data).digest("hex"));
  }
});

test("our Ed25519 signs as the platform does, and takes what it signed, but nothing else", () => {
  for (let n = 0; n < 8; n++) {
    // Made of a seed: a key that Node generates may hang in its export when the collector of garbage comes by (18.18.2).
    const seed = new Uint8Array(randomBytes(32));
    const pkcs8 = Buffer.concat([Buffer.from("302e020100300506032b657004220420", "hex"), seed]);
    const privateKey = createPrivateKey({ key: pkcs8, format: "der", type: "pkcs8" });
    const key = new Uint8Array(createPublicKey(privateKey).export({ format: "der", type: "spki" }).subarray(-32));
    const message = randomBytes(60);
    assert.deepEqual(own.publicKeyOf(seed), key);
    const signature = own.sign(seed, message);
    assert.deepEqual(signature, new Uint8Array(signed(null, message, privateKey)));
    assert.ok(own.verify(key, message, signature));
    signature[n] ^= 1;
    assert.ok(!own.verify(key, message, signature));
  }
});

test("every half-precision number is itself again", () => {
  for (const dtype of /** @type {const} */ (["F16", "BF16"])) {
    const layout = layoutOf([{ name: "w", dtype, shape: [65536] }]);
    const words = Uint16Array.from({ length: 65536 }, (_, word) => word);
    const bytes = new Uint8Array([...layout.prefix, ...new Uint8Array(words.buffer)]);
    const isFinite = (/** @type {number} */ word) =>
      (word & (dtype === "F16" ? 0x7c00 : 0x7f80)) !== (dtype === "F16" ? 0x7c00 : 0x7f80);
    bytes.set(new Uint8Array(words.map((word) => (isFinite(word) ? word : 0)).buffer), layout.prefix.length);
    assert.deepEqual(encodeModel(layout, decodeModel(layout, bytes, Infinity)), bytes);
  }
});

test("an entry is replaced only by who knows what stands there", async () => {
  const path = await mkdtemp(join(tmpdir(), "dag-acfl-"));
  const storage = await folder(path);
  const [one, two] = [Uint8Array.of(1), Uint8Array.of(2)];
  await storage.write("position", one, null);
  await assert.rejects(storage.write("position", two, null), { code: "state-locked" });
  await assert.rejects(storage.write("position", two, two), { code: "state-locked" });
  await storage.write("position", two, one);
  assert.deepEqual(await storage.read("position"), two);
  assert.equal(await storage.read("absent"), undefined);
});

const layers = [3, 4, 2];
const trainX = Float32Array.from({ length: 12 }, (_, at) => Math.sin(at + 1));
const trainY = Uint8Array.of(0, 1, 1, 0);

test("the perceptron's gradient is the loss's slope", () => {
  const model = new Mlp({ layers, trainX, trainY, seed: 1 });
  const arrays = model.initialArrays();
  const data = { x: trainX, y: trainY };
  const { arrays: slopes } = model.gradient(arrays, data, [0, 1, 2, 3]);
  const by = 2 ** -8;
  for (const name in arrays)
    for (let at = 0; at < arrays[name].length; at++) {
      const [up, down] = [by, -by].map((change) => {
        const moved = { ...arrays, [name]: arrays[name].slice() };
        moved[name][at] += change;
        return model.gradient(moved, data, [0, 1, 2, 3]).loss;
      });
      assert.ok(Math.abs((up - down) / (2 * by) - slopes[name][at]) < 1e-3, `${name}[${at}]`);
    }
});

test("in a worker it trains as on the page, from the same seed", async () => {
  const [here, there] = [
    new Mlp({ layers, trainX, trainY, seed: 7 }),
    mlp({ layers, trainX, trainY, testX: trainX, testY: trainY, seed: 7 }),
  ];
  const arrays = here.initialArrays();
  assert.deepEqual(await there.initialArrays(), arrays);
  assert.deepEqual(await there.buffers(), []);
  const how = { epochs: 60, hints: { learning_rate: 0.5, batch_size: 2 } };
  const trained = here.train(arrays, how);
  assert.deepEqual(await there.train(arrays, how), trained);
  assert.equal((await there.evaluate(trained.arrays)).accuracy, 1);
  await assert.rejects(async () => there.train({}, how));
  there.close();
});
