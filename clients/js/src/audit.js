/**
 * Bytes of strangers, taken apart strictly: headers and models, and under which of the protocol's codes they are refused.
 * A client needs none of it, for its server has looked; who reads a ledger for others does.
 */
import { equal, hex, isHex, parsed } from "./bytes.js";
import { DagAcflError } from "./errors.js";
import { MAGIC } from "./header.js";
import { bytesOf, decodeModel } from "./model.js";

/** @typedef {import("./header.js").Header} Header */
/** @typedef {import("./model.js").Tensor} Tensor */

const ZERO_ID = "0".repeat(64);
const MAX_METRICS = 32;
const KINDS = ["hash:", "key:"];
const MAX_INTEGER = 2n ** 63n - 1n;
const NAME = /^[a-z0-9_.-]{1,64}$/;

/** @param {boolean} holds @param {string} code @param {string} fault */
function must(holds, code, fault) {
  if (!holds) throw new DagAcflError(code, fault);
}

/** @param {boolean} holds @param {string} fault */
const valid = (holds, fault) => must(holds, "transaction-invalid", fault);

/** @param {boolean} holds @param {string} [fault] */
const wellFormed = (holds, fault = "the bytes are not the one encoding of a header") =>
  must(holds, "header-malformed", fault);

/** @param {string} author @returns {[number, string]} Kind of author, and 64 digits. */
export function splitAuthor(author) {
  const kind = KINDS.findIndex((prefix) => author.startsWith(prefix));
  const digits = author.slice((KINDS[kind] ?? "").length);
  valid(kind >= 0 && isHex(digits), "an author is key: or hash: and 64 lowercase hexadecimal digits");
  return [kind, digits];
}

/** @param {number} value */
const isCanonical = (value) => Number.isFinite(value) && !Object.is(value, -0);

/** @param {Record<keyof Header, any>} header */
function check(header) {
  splitAuthor(header.author);
  const { parents, metrics, extensions } = header;
  valid(
    [header.ledger, header.start, header.model_digest, header.attachment_digest].every((id) => isHex(id)),
    "ledger, start, model_digest and attachment_digest are 64 lowercase hexadecimal digits",
  );
  for (const number of [header.sequence, header.created_at_ms, header.num_examples, header.model_size])
    valid(number >= 0 && number <= MAX_INTEGER, "whole numbers lie between 0 and 2^63 - 1");
  valid(isCanonical(header.noise_std) && header.noise_std >= 0, "noise_std is finite and at least 0");
  const ascend = parents.every(
    (/** @type {string} */ id, /** @type {number} */ at) => isHex(id) && (at === 0 || parents[at - 1] < id),
  );
  const count = header.kind
    ? parents.length >= 1 && parents.length <= 1024
    : !parents.length && header.ledger === ZERO_ID;
  must(
    ascend && count,
    "parents-invalid",
    "1 to 1024 parents, strictly ascending; genesis has none and names no ledger",
  );
  valid(
    (header.start === ZERO_ID) === (header.kind === 0),
    "every update names the model that its training began from",
  );
  const names = Object.keys(metrics);
  const own = names.filter((name) => !name.startsWith("_")).length;
  valid(
    Math.max(own, names.length - own) <= MAX_METRICS,
    `at most ${MAX_METRICS} metrics, and as many of the system's`,
  );
  for (const name of names) valid(NAME.test(name) && isCanonical(metrics[name]), `metric ${name}: its name or value`);
  for (const [name, value] of Object.entries(extensions))
    valid(NAME.test(name) && value.length <= 1024, `extension ${name}: its name or size`);
}

/** Whole numbers beyond 2^53 are bigints. @param {Uint8Array} bytes */
export function decodeHeader(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  let at = 0;
  const next = (/** @type {number} */ size) => {
    wellFormed(at + size <= bytes.length, `the header ends after ${bytes.length} bytes, inside a field`);
    return (at += size) - size;
  };
  const digits = (size = 32) => hex(bytes.subarray(next(size), at));
  const whole = () => {
    const number = view.getBigUint64(next(8));
    return number > Number.MAX_SAFE_INTEGER ? number : Number(number);
  };
  /** @template T @param {() => T} value @param {number} most */
  const map = (value, most) => {
    /** @type {Record<string, T>} */
    const found = Object.create(null);
    let latest = "";
    const count = view.getUint16(next(2));
    wellFormed(count <= most);
    for (let i = 0; i < count; i++) {
      const name = String.fromCharCode(...bytes.subarray(next(bytes[next(1)]), at));
      wellFormed(!i || name > latest, "names are strictly ascending");
      found[(latest = name)] = value();
    }
    return found;
  };
  wellFormed(digits(8) === MAGIC);
  const ledger = digits();
  const kind = bytes[next(1)];
  const author = KINDS[bytes[next(1)]];
  wellFormed(kind < 2 && author !== undefined, "the kind or the author's kind is unknown");
  const header = {
    ledger,
    kind,
    author: author + digits(),
    sequence: whole(),
    created_at_ms: whole(),
    num_examples: whole(),
    noise_std: view.getFloat64(next(8)),
    start: digits(),
    model_digest: digits(),
    model_size: whole(),
    attachment_digest: digits(),
    parents: Array.from({ length: view.getUint16(next(2)) }, () => digits()),
    metrics: map(() => view.getFloat64(next(8)), 2 * MAX_METRICS),
    extensions: map(() => {
      const size = view.getUint16(next(2));
      wellFormed(size <= 512);
      return digits(size);
    }, 16),
  };
  wellFormed(at === bytes.length, `${bytes.length - at} bytes follow the header's end`);
  check(header);
  return header;
}

/**
 * That a model came whole, in the one encoding of the layout, with finite values within the bound.
 *
 * @param {import("./model.js").Layout} layout
 * @param {Uint8Array} bytes
 */
export function checkModel(layout, bytes) {
  if (bytes.length === layout.size && equal(bytes.subarray(0, layout.prefix.length), layout.prefix)) {
    decodeModel(layout, bytes);
    return;
  }
  const found = readTensors(bytes);
  const text = (/** @type {Tensor} */ { name, dtype, shape }) => `${name} ${dtype} ${shape}`;
  const expected = new Set(layout.tensors.map(text));
  const same = found.length === expected.size && found.every((tensor) => expected.has(text(tensor)));
  must(same, "model-layout", "other tensors than the layout's");
  must(false, "model-not-canonical", "the layout's tensors, but not in the one encoding of them");
}

/**
 * The tensors of any safetensors file, in the order of their values.
 *
 * @param {Uint8Array} bytes
 * @returns {(Tensor & {data_offsets: number[]})[]}
 */
function readTensors(bytes) {
  const sound = (/** @type {boolean} */ holds, /** @type {string} */ fault) => must(holds, "model-malformed", fault);
  sound(bytes.length >= 8, `${bytes.length} bytes`);
  const length = Number(new DataView(bytes.buffer, bytes.byteOffset).getBigUint64(0, true));
  must(length <= 2 ** 20, "model-too-large", `the header claims ${length} bytes`);
  sound(length >= 2 && 8 + length <= bytes.length, `the header claims ${length} bytes`);
  const header = parsed(bytes.subarray(8, 8 + length));
  sound(header !== undefined, "the header is not a JSON object");
  must(!("__metadata__" in Object(header)), "model-not-canonical", "__metadata__ is not allowed");
  const counts = (/** @type {any} */ list) =>
    Array.isArray(list) && list.every((n) => Number.isSafeInteger(n) && n >= 0);
  const tensors = Object.entries(Object(header)).map(([name, tensor]) => ({ name, ...tensor }));
  const typed = tensors.every((t) => typeof t.dtype === "string" && counts(t.shape) && counts(t.data_offsets));
  sound(typed, "dtype, shape or offsets of a tensor are missing or mistyped");
  tensors.sort((a, b) => a.data_offsets[0] - b.data_offsets[0]);
  let at = 0;
  for (const tensor of tensors) {
    const [start, end] = tensor.data_offsets;
    sound(
      start === at && end - start === bytesOf(tensor),
      `tensor ${tensor.name}: a hole, an overlap, or another size`,
    );
    at = end;
  }
  sound(8 + length + at === bytes.length, "bytes are missing or follow");
  return tensors;
}
