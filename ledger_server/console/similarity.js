/** How alike two models are, tensor by tensor: computed in this browser from the models themselves. */
import { getBytes } from "./api.js";
import { digestOf } from "./client/crypto.js";
import { decodeModel, layoutOf } from "./client/model.js";

/** @typedef {{digest: string, href: string}} ModelLink */
/** @typedef {Record<string, Float32Array>} Arrays */

/** A model's bytes, checked. @param {ModelLink} link */
export async function modelBytes({ digest, href }) {
  const data = await getBytes(href);
  if ((await digestOf(data)) !== digest) throw new Error("what came is not this model");
  return data;
}

/** @param {any} genesis As /v1/genesis answers. @param {ModelLink} link @returns {Promise<Arrays>} */
export const fetched = async (genesis, link) =>
  decodeModel(layoutOf(genesis.document.layout.filter((/** @type {any} */ { role }) => role !== "local")), await modelBytes(link));

/**
 * Cosine of what two models have learnt (model less genesis) in each tensor, as the selection compares them whole;
 * NaN where one of them has learnt nothing there.
 *
 * @param {Arrays} one @param {Arrays} other @param {Arrays} genesis
 * @returns {Record<string, number>}
 */
export function cosines(one, other, genesis) {
  return Object.fromEntries(
    Object.entries(genesis).map(([name, began]) => {
      const [a, b] = [one[name], other[name]];
      let [both, ofOne, ofOther] = [0, 0, 0];
      for (let at = 0; at < began.length; at += 1) {
        const [x, y] = [a[at] - began[at], b[at] - began[at]];
        both += x * y;
        ofOne += x * x;
        ofOther += y * y;
      }
      return [name, both / Math.sqrt(ofOne * ofOther)];
    }),
  );
}
