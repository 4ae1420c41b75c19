import { Participant } from "../../src/index.js";

/**
 * Steps of a client whose three weights and bias go half of the way to a target in each epoch.
 *
 * @param {string} server
 * @param {{storage: import("../../src/storage.js").Storage, target: number, steps: number, token?: string}} options
 */
export async function take(server, { storage, target, steps, token }) {
  const layout = /** @type {import("../../src/model.js").Tensor[]} */ ([
    { name: "fc.weight", dtype: "F32", shape: [1, 3] },
    { name: "fc.bias", dtype: "F32", shape: [1] },
  ]);
  const trainer = {
    layout: () => layout,
    initialArrays: () => ({ "fc.weight": new Float32Array(3), "fc.bias": new Float32Array(1) }),
    buffers: () => [],
    train: (/** @type {Record<string, Float32Array>} */ arrays, /** @type {{epochs: number}} */ { epochs }) => {
      const kept = 0.5 ** epochs;
      const moved = Object.entries(arrays).map(([name, values]) => [
        name,
        values.map((value) => kept * value + (1 - kept) * target),
      ]);
      return { arrays: Object.fromEntries(moved), numExamples: 10 };
    },
    evaluate: (/** @type {Record<string, Float32Array>} */ arrays) => ({
      loss: Math.abs(arrays["fc.bias"][0] - target),
    }),
  };
  const participant = await Participant.open(server, { trainer, storage, token, timeoutMs: 20_000 });
  /** @type {import("../../src/participant.js").StepReport[]} */
  const reports = [];
  await participant.run(steps, { onStep: (report) => reports.push(report) });
  return { author: await participant.client.author(), reports };
}
