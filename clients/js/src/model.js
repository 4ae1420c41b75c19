/** Models as safetensors: for one layout there is one file prefix, and behind it nothing but values. */
import { concat, equal, utf8 } from "./bytes.js";
import { check } from "./errors.js";

/** @typedef {{name: string, dtype: "F32" | "F16" | "BF16", shape: number[]}} Tensor */
/** @typedef {Record<string, Float32Array>} Arrays Values by name, row by row. */
/** @typedef {{tensors: Tensor[], prefix: Uint8Array, size: number}} Layout `size` is a model's, in bytes. */

const DTYPES = ["F32", "BF16", "F16"];

/** @param {{shape: number[]}} tensor */
const sizeOf = ({ shape }) => shape.reduce((product, side) => product * side, 1);

/** @param {Tensor} tensor */
export const bytesOf = (tensor) => sizeOf(tensor) * (tensor.dtype === "F32" ? 4 : 2);

/** @param {Tensor[]} tensors In any order. @returns {Layout} */
export function layoutOf(tensors) {
  const order = [...tensors].sort(
    (a, b) => DTYPES.indexOf(a.dtype) - DTYPES.indexOf(b.dtype) || (a.name < b.name ? -1 : 1),
  );
  let at = 0;
  const parts = order.map((tensor) => {
    const { name, dtype, shape } = tensor;
    return `${JSON.stringify(name)}:${JSON.stringify({ dtype, shape, data_offsets: [at, (at += bytesOf(tensor))] })}`;
  });
  const json = utf8(`{${parts.join(",")}}`);
  const prefix = new Uint8Array(8 + Math.ceil(json.length / 8) * 8).fill(32);
  new DataView(prefix.buffer).setBigUint64(0, BigInt(prefix.length - 8), true);
  prefix.set(json, 8);
  return { tensors: order, prefix, size: prefix.length + at };
}

const float = new Float32Array(1);
const bits = new Uint32Array(float.buffer);

/**
 * The 16-bit formats: bits of the fraction, and the exponent of the smallest normal number.
 *
 * @type {Record<string, [number, number]>}
 */
const HALVES = { BF16: [7, -126], F16: [10, -14] };

/** A number in 16 bits, to nearest, ties to even. @param {number} value @param {string} dtype */
function narrow(value, dtype) {
  const [width, lowest] = HALVES[dtype];
  float[0] = value;
  const infinity = 2 ** 15 - 2 ** width;
  const exponent = Math.max(((bits[0] >>> 23) & 255) - 127, lowest);
  const exact = Math.abs(value) / 2 ** (exponent - width);
  const up = Math.round(exact);
  const word = (exponent - lowest) * 2 ** width + (up - exact === 0.5 ? up - (up % 2) : up);
  const sign = (bits[0] >>> 31) * 2 ** 15;
  return sign + (value === value ? Math.min(word, infinity) : infinity + 1);
}

/** @param {number} word 16 bits @param {string} dtype */
function widen(word, dtype) {
  const [width, lowest] = HALVES[dtype];
  const exponent = word % 2 ** 15 >> width,
    fraction = word % 2 ** width,
    one = 2 ** width;
  const value =
    exponent === 2 ** (15 - width) - 1
      ? fraction
        ? NaN
        : Infinity
      : exponent
        ? 2 ** (exponent - 1 + lowest - width) * (one + fraction)
        : 2 ** (lowest - width) * fraction;
  return word >> 15 ? -value : value;
}

/** @param {Float32Array} values @param {string} dtype */
function encodeValues(values, dtype) {
  const stored = dtype === "F32" ? values : Uint16Array.from(values, (value) => narrow(value, dtype));
  return new Uint8Array(stored.buffer, stored.byteOffset, stored.byteLength);
}

/** @param {Uint8Array} bytes @param {string} dtype */
function decodeValues(bytes, dtype) {
  const { buffer } = bytes.slice(); // values lie at any address in a file, and at their own in an array
  return dtype === "F32"
    ? new Float32Array(buffer)
    : Float32Array.from(new Uint16Array(buffer), (word) => widen(word, dtype));
}

/**
 * A model's bytes.
 *
 * @param {Layout} layout
 * @param {Arrays} arrays One for each tensor.
 */
export function encodeModel(layout, arrays) {
  const extra = Object.keys(arrays).find((name) => !layout.tensors.some((tensor) => tensor.name === name));
  check(!extra, `the layout has no tensor ${extra}`, "model-layout");
  const parts = layout.tensors.map((tensor) => {
    const values = arrays[tensor.name];
    const fits = values instanceof Float32Array && values.length === sizeOf(tensor);
    check(fits, `tensor ${tensor.name} must be a Float32Array of ${sizeOf(tensor)} values`, "model-layout");
    return encodeValues(values, tensor.dtype);
  });
  return concat(layout.prefix, ...parts);
}

/**
 * A canonical model's arrays.
 *
 * @param {Layout} layout
 * @param {Uint8Array} bytes
 * @param {number} [maxAbs] Largest magnitude of a value.
 * @returns {Arrays}
 */
export function decodeModel(layout, bytes, maxAbs = 1e38) {
  const fits = bytes.length === layout.size && equal(bytes.subarray(0, layout.prefix.length), layout.prefix);
  check(fits, "not a model of this ledger, or not in the one encoding of it", "model-layout");
  let at = layout.prefix.length;
  return Object.fromEntries(
    layout.tensors.map((tensor) => {
      const values = decodeValues(bytes.subarray(at, (at += bytesOf(tensor))), tensor.dtype);
      const finite = values.every((value) => Math.abs(value) <= maxAbs);
      check(finite, `tensor ${tensor.name} holds a value that is not finite or beyond ${maxAbs}`, "model-not-finite");
      return [tensor.name, values];
    }),
  );
}
