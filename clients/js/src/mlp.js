/** A small multi-layer perceptron that trains in a worker: a few hundred thousand values, no framework. */
import { inWorker } from "./worker.js";

/**
 * @typedef {object} MlpOptions
 * @property {number[]} layers Inputs, hidden units, classes: `[64, 32, 10]`. Its tensors are `fc1.weight`, `fc1.bias`,
 *   `fc2.weight`, …, as PyTorch's `nn.Linear` has them.
 * @property {Float32Array} trainX Samples, one behind the other.
 * @property {Uint8Array} trainY Their classes.
 * @property {Float32Array} [testX]
 * @property {Uint8Array} [testY]
 * @property {number} [batchSize] Where the ledger gives no hint `batch_size`; default 10.
 * @property {number} [learningRate] Where the ledger gives no hint `learning_rate`; default 0.1.
 * @property {number} [seed] Of the initial values and of the order of samples.
 */

/** @param {MlpOptions} options */
export const mlp = (options) => inWorker(new URL("./mlp_worker.js", import.meta.url), options);
