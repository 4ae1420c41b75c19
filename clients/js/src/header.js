/** The header of a transaction, its id and what is signed: docs/protocol.md, *Transaction header*. */
import { concat, isHex, uint64, unhex, utf8 } from "./bytes.js";
import { digestOf } from "./crypto.js";
import { check } from "./errors.js";

/**
 * Named as on the wire.
 *
 * @typedef {object} Header
 * @property {string} ledger
 * @property {number} kind 0 genesis, 1 update
 * @property {string} author `key:` or `hash:`, and 64 digits
 * @property {number} sequence
 * @property {number} created_at_ms
 * @property {number} num_examples
 * @property {number} noise_std
 * @property {string} start
 * @property {string} model_digest
 * @property {number} model_size
 * @property {string} attachment_digest
 * @property {string[]} parents
 * @property {Record<string, number>} metrics
 * @property {Record<string, string>} extensions hexadecimal
 */

export const MAGIC = "6461676163666c01";

/** @param {number} number */
const uint16 = (number) => Uint8Array.of(number >> 8, number & 255);

/** @param {number} number */
const double = (number) => new Uint8Array(Float64Array.of(number).buffer).reverse();

/**
 * A map's bytes: how many, then each name and value, ascending by name.
 *
 * @template T
 * @param {Record<string, T>} map
 * @param {(value: T) => Uint8Array} encode
 */
function entries(map, encode) {
  const names = Object.keys(map).sort();
  const pieces = names.flatMap((name) => [Uint8Array.of(name.length), utf8(name), encode(map[name])]);
  return concat(uint16(names.length), ...pieces);
}

/** An id of another length, which a server may name, would add fields to what the author signs. @param {string} digits */
function id(digits) {
  check(isHex(digits), "an id is 64 lowercase hexadecimal digits", "transaction-invalid");
  return unhex(digits);
}

/** @param {Header} header @returns {Uint8Array} */
export const encodeHeader = (header) =>
  concat(
    unhex(MAGIC),
    id(header.ledger),
    Uint8Array.of(header.kind, header.author.startsWith("key:") ? 1 : 0),
    id(header.author.slice(-64)),
    uint64(header.sequence),
    uint64(header.created_at_ms),
    uint64(header.num_examples),
    double(header.noise_std),
    id(header.start),
    id(header.model_digest),
    uint64(header.model_size),
    id(header.attachment_digest),
    uint16(header.parents.length),
    ...header.parents.map(id),
    entries(header.metrics, double),
    entries(header.extensions, (value) => concat(uint16(value.length / 2), unhex(value))),
  );

/** @param {Uint8Array} header Its bytes. */
export const transactionId = (header) => digestOf(concat(utf8("dag-acfl/transaction/v1\0"), header));

/**
 * What is signed of an id.
 *
 * @param {string} role `author` or `receipt`
 * @param {string} id
 * @param {...number} then
 */
export const signedBytes = (role, id, ...then) => concat(utf8(`dag-acfl/${role}/v1\0`), unhex(id), ...then.map(uint64));
