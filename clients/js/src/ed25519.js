/**
 * Ed25519 (RFC 8032) on bigints, for platforms without it. It takes a time that depends on the key, which other programs of
 * the same machine could measure. An S that is not reduced is refused; `crypto.js` refuses weak keys.
 */
import { concat, hex, unhex } from "./bytes.js";
import { sha512 } from "./sha2.js";

const P = 2n ** 255n - 19n;
/** Order of the base point. */
const L = 2n ** 252n + 27742317777372353535851937790883648493n;

/** @param {bigint} value */
const mod = (value, by = P) => ((value % by) + by) % by;

/** @param {bigint} base @param {bigint} exponent */
function power(base, exponent) {
  let result = 1n;
  for (; exponent; exponent >>= 1n, base = mod(base * base)) if (exponent & 1n) result = mod(result * base);
  return result;
}

const inverse = (/** @type {bigint} */ value) => power(value, P - 2n);
const D = mod(-121665n * inverse(121666n));

/** @typedef {[bigint, bigint, bigint, bigint]} Point Extended coordinates: X, Y, Z, T with x = X/Z, y = Y/Z, xy = T/Z. */

/** @type {Point} */
const ZERO = [0n, 1n, 1n, 0n];
const BASE = /** @type {Point} */ (pointOf(mod(4n * inverse(5n)), 0n));

/** @param {Point} p @param {Point} q @returns {Point} */
function add(p, q) {
  const a = mod((p[1] - p[0]) * (q[1] - q[0]));
  const b = mod((p[1] + p[0]) * (q[1] + q[0]));
  const c = mod(2n * p[3] * q[3] * D);
  const d = mod(2n * p[2] * q[2]);
  const [e, f, g, h] = [b - a, d - c, d + c, b + a];
  return [mod(e * f), mod(g * h), mod(f * g), mod(e * h)];
}

/** @param {Point} point @param {bigint} scalar */
function times(point, scalar) {
  let sum = ZERO;
  for (; scalar; scalar >>= 1n, point = add(point, point)) if (scalar & 1n) sum = add(sum, point);
  return sum;
}

/** The point with this y and this parity of x. @param {bigint} y @param {bigint} sign @returns {Point | undefined} */
function pointOf(y, sign) {
  const [u, v] = [mod(y * y - 1n), mod(D * y * y + 1n)];
  let x = mod(u * v ** 3n * power(mod(u * v ** 7n), (P - 5n) / 8n));
  if (mod(v * x * x) !== u) x = mod(x * power(2n, (P - 1n) / 4n));
  if (mod(v * x * x) !== u) return undefined;
  if ((x & 1n) !== sign) x = mod(-x);
  return [x, y, 1n, mod(x * y)];
}

/** @param {Uint8Array} bytes Little-endian. */
const numberOf = (bytes) => BigInt(`0x${hex(Uint8Array.from(bytes).reverse())}`);

/** @param {bigint} number @returns {Uint8Array} 32 bytes, little-endian */
const bytesOf = (number) => unhex(number.toString(16).padStart(64, "0")).reverse();

/** @param {Point} point */
function encode([x, y, z]) {
  const by = inverse(z);
  return bytesOf(mod(y * by) | ((mod(x * by) & 1n) << 255n));
}

/** @param {Uint8Array} seed 32 bytes */
function expand(seed) {
  const digest = sha512(seed);
  digest[0] &= 248;
  digest[31] = (digest[31] & 127) | 64;
  return { scalar: numberOf(digest.subarray(0, 32)), prefix: digest.subarray(32) };
}

/** @param {...Uint8Array} pieces */
const scalarOf = (...pieces) => mod(numberOf(sha512(...pieces)), L);

/** @param {Uint8Array} seed 32 bytes @returns {Uint8Array} 32 bytes */
export const publicKeyOf = (seed) => encode(times(BASE, expand(seed).scalar));

/** @param {Uint8Array} seed @param {Uint8Array} message @returns {Uint8Array} 64 bytes */
export function sign(seed, message) {
  const { scalar, prefix } = expand(seed);
  const r = scalarOf(prefix, message);
  const R = encode(times(BASE, r));
  return concat(R, bytesOf(mod(r + scalarOf(R, publicKeyOf(seed), message) * scalar, L)));
}

/** @param {Uint8Array} key @param {Uint8Array} message @param {Uint8Array} signature @returns {boolean} */
export function verify(key, message, signature) {
  if (key.length !== 32 || signature.length !== 64) return false;
  const encoded = numberOf(key);
  const y = encoded & ((1n << 255n) - 1n);
  const s = numberOf(signature.subarray(32));
  const point = s < L ? pointOf(y, encoded >> 255n) : undefined;
  if (!point) return false;
  const R = signature.subarray(0, 32);
  const k = scalarOf(R, key, message);
  const [x, ...rest] = times(point, k);
  const negated = /** @type {Point} */ ([mod(-x), rest[0], rest[1], mod(-rest[2])]);
  return hex(encode(add(times(BASE, s), negated))) === hex(R);
}
