/**
 * The protocol's vectors (docs/conformance/v1.json), as far as a client meets them: run by Node and, through page.html, by
 * a browser. The others (acts, checkpoints, averages, sketches, rules of genesis and evidence) are of servers.
 */
import { checkModel, decodeHeader, splitAuthor } from "../../src/audit.js";
import { hex, unhex, utf8 } from "../../src/bytes.js";
import { checkSignature, digestOf, publicKeyOf, sign } from "../../src/crypto.js";
import * as own from "../../src/ed25519.js";
import { encodeHeader, signedBytes, transactionId } from "../../src/header.js";
import { decodeModel, encodeModel, layoutOf } from "../../src/model.js";
import { sha256 } from "../../src/sha2.js";

/** @param {unknown} value @returns {unknown} The same with keys in order, and whole numbers beyond 2^53 as text. */
const plain = (value) =>
  Array.isArray(value)
    ? value.map(plain)
    : value && typeof value === "object"
      ? Object.keys(value)
          .sort()
          .map((key) => [key, plain(/** @type {any} */ (value)[key])])
      : typeof value === "bigint"
        ? `${value}`
        : value;

/** @param {unknown} found @param {unknown} expected @param {string} what */
function same(found, expected, what) {
  const [here, there] = [found, expected].map((value) => JSON.stringify(plain(value)));
  if (here !== there) throw new Error(`${what}: ${here} is not ${there}`);
}

/** @param {() => unknown} call @param {string} what */
async function codeOf(call, what) {
  try {
    await call();
  } catch (error) {
    return /** @type {any} */ (error).code;
  }
  throw new Error(`${what}: not refused`);
}

/** Whole numbers beyond 2^53 as text. @param {string} text */
const parse = (text) => JSON.parse(text.replace(/: (\d{16,})\b/g, ': "$1"'));
/** @type {Record<string, (vector: any, all: any) => Promise<void>>} */
const CHECKS = {
  async keys({ name, seed, public_key: key }) {
    same(await publicKeyOf(seed), key, name);
    same(hex(own.publicKeyOf(unhex(seed))), key, `${name}, own`);
  },
  async headers({ name, fields, header, id, author_signature: signature }, { keys }) {
    const numbers = Object.fromEntries(
      ["sequence", "created_at_ms", "num_examples", "model_size"].map((field) => [field, BigInt(fields[field])]),
    );
    const bytes = encodeHeader({ ...fields, ...numbers });
    same(hex(bytes), header, name);
    same(await transactionId(bytes), id, name);
    same(hex(sha256(new Uint8Array([...utf8("dag-acfl/transaction/v1\0"), ...bytes]))), id, `${name}, own`);
    same(decodeHeader(bytes), fields, name);
    if (!signature) return;
    const message = signedBytes("author", id);
    const { seed } = keys.find((/** @type {any} */ key) => fields.author.endsWith(key.public_key));
    same(await sign(seed, message), signature, name);
    same(hex(own.sign(unhex(seed), message)), signature, `${name}, own`);
    await checkSignature(fields.author.slice(4), message, signature);
    same(own.verify(unhex(fields.author.slice(4)), message, unhex(signature)), true, `${name}, own`);
  },
  async headers_refused({ name, header, code }) {
    same(await codeOf(() => decodeHeader(unhex(header)), name), code, name);
  },
  async signatures_refused({ name, public_key: key, id, role, signature }) {
    const message = signedBytes(role, id);
    same(await codeOf(() => checkSignature(key, message, signature), name), "signature-invalid", name);
    if (!name.startsWith("weak key") && signature.length === 128)
      same(own.verify(unhex(key), message, unhex(signature)), false, `${name}, own`);
  },
  async authors({ author, valid }) {
    if (valid) splitAuthor(author);
    else same(await codeOf(() => splitAuthor(author), author), "transaction-invalid", author);
  },
  async receipts({ id, fields, receipt }) {
    const { issuer, received_at_ms: at, members_version: version } = fields;
    await checkSignature(
      issuer,
      signedBytes("receipt", id, /** @type {any} */ (BigInt(at)), /** @type {any} */ (BigInt(version))),
      receipt.slice(96),
    );
  },
  async layouts({ name, tensors, prefix, size }) {
    const layout = layoutOf([...tensors].reverse());
    same([hex(layout.prefix), layout.size, layout.tensors], [prefix, size, tensors], name);
  },
  async models({ layout: name, values, model, digest }, { layouts }) {
    const layout = layoutOf(layouts.find((/** @type {any} */ each) => each.name === name).tensors);
    const bytes = unhex(model);
    let at = 0;
    const arrays = Object.fromEntries(
      layout.tensors.map(({ name, shape }) => [
        name,
        Float32Array.from(values.slice(at, (at += shape.reduce((a, b) => a * b, 1)))),
      ]),
    );
    same(hex(encodeModel(layout, arrays)), model, name);
    same(hex(encodeModel(layout, decodeModel(layout, bytes))), model, name);
    checkModel(layout, bytes);
    same([await digestOf(bytes), hex(sha256(bytes))], [digest, digest], name);
  },
  async models_refused({ name, model, code }, { layouts }) {
    same(await codeOf(() => checkModel(layoutOf(layouts[0].tensors), unhex(model)), name), code, name);
  },
  async genesis({ name, document, digest }) {
    same(await digestOf(utf8(document)), digest, name);
    const layout = layoutOf(JSON.parse(document).layout.filter((/** @type {any} */ { role }) => role !== "local"));
    same(layout.tensors.length > 0, true, name);
  },
};

/**
 * @param {string} text Of docs/conformance/v1.json.
 * @returns {Promise<Record<string, number>>} How many vectors of each kind hold; the first that does not is thrown.
 */
export async function conform(text) {
  const vectors = parse(text);
  /** @type {Record<string, number>} */
  const held = {};
  for (const [kind, check] of Object.entries(CHECKS)) {
    for (const vector of vectors[kind]) await check(vector, vectors);
    held[kind] = vectors[kind].length;
  }
  return held;
}
