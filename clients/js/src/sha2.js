/**
 * SHA-256 and SHA-512 (FIPS 180-4): a page that is no secure context has no `crypto.subtle`.
 *
 * The constants are what the standard says they are: the first 64 bits behind the point of the square roots of the
 * first 8 primes, and of the cube roots of the first 80.
 */
import { concat } from "./bytes.js";

const primes = Array.from({ length: 410 }, (_, n) => n).filter(
  (n) => n > 1 && !Array.from({ length: n }, (_, d) => d).some((d) => d > 1 && n % d === 0),
);

/** The first 64 bits behind the point of a prime's root. @param {number} prime @param {number} degree 2 or 3 */
function fraction(prime, degree) {
  const of = BigInt(prime) << BigInt(64 * degree);
  let root = 0n;
  for (let bit = 1n << 68n; bit; bit >>= 1n) if ((root | bit) ** BigInt(degree) <= of) root |= bit;
  return BigInt.asUintN(64, root);
}

const K512 = primes.map((prime) => fraction(prime, 3));
const H512 = primes.slice(0, 8).map((prime) => fraction(prime, 2));
const K256 = Int32Array.from(K512.slice(0, 64), (value) => Number(value >> 32n));

/**
 * The message's end: what is left over of whole blocks, a bit, zeros, and the length in bits.
 *
 * @param {Uint8Array} data
 * @param {number} block Bytes.
 */
function ending(data, block) {
  const rest = data.subarray(data.length - (data.length % block));
  const padded = new Uint8Array(Math.ceil((rest.length + 1 + block / 8) / block) * block);
  padded.set(rest);
  padded[rest.length] = 128;
  new DataView(padded.buffer).setBigUint64(padded.length - 8, BigInt(data.length) * 8n);
  return padded;
}

/** @param {Uint8Array} data @returns {Uint8Array} 32 bytes */
export function sha256(data) {
  const state = Int32Array.from(H512, (value) => Number(value >> 32n));
  const w = new Int32Array(64);
  /** @param {Uint8Array} bytes Whole blocks. */
  const compress = (bytes) => {
    const view = new DataView(bytes.buffer, bytes.byteOffset);
    for (let at = 0; at < bytes.length; at += 64) {
      for (let i = 0; i < 16; i++) w[i] = view.getInt32(at + 4 * i);
      for (let i = 16; i < 64; i++) {
        const x = w[i - 15],
          y = w[i - 2];
        const s0 = ((x >>> 7) | (x << 25)) ^ ((x >>> 18) | (x << 14)) ^ (x >>> 3);
        const s1 = ((y >>> 17) | (y << 15)) ^ ((y >>> 19) | (y << 13)) ^ (y >>> 10);
        w[i] = (w[i - 16] + s0 + w[i - 7] + s1) | 0;
      }
      let [a, b, c, d, e, f, g, h] = state;
      for (let i = 0; i < 64; i++) {
        const s1 = ((e >>> 6) | (e << 26)) ^ ((e >>> 11) | (e << 21)) ^ ((e >>> 25) | (e << 7));
        const t1 = (h + s1 + ((e & f) ^ (~e & g)) + K256[i] + w[i]) | 0;
        const s0 = ((a >>> 2) | (a << 30)) ^ ((a >>> 13) | (a << 19)) ^ ((a >>> 22) | (a << 10));
        const t2 = (s0 + ((a & b) ^ (a & c) ^ (b & c))) | 0;
        h = g;
        g = f;
        f = e;
        e = (d + t1) | 0;
        d = c;
        c = b;
        b = a;
        a = (t1 + t2) | 0;
      }
      state[0] += a;
      state[1] += b;
      state[2] += c;
      state[3] += d;
      state[4] += e;
      state[5] += f;
      state[6] += g;
      state[7] += h;
    }
  };
  compress(data.subarray(0, data.length - (data.length % 64)));
  compress(ending(data, 64));
  const out = new DataView(new ArrayBuffer(32));
  state.forEach((word, i) => out.setInt32(4 * i, word));
  return new Uint8Array(out.buffer);
}

/**
 * Of short messages: 64-bit words are bigints here.
 *
 * @param {...Uint8Array} pieces Of one message.
 * @returns {Uint8Array} 64 bytes
 */
export function sha512(...pieces) {
  const data = concat(...pieces);
  const bytes = concat(data.subarray(0, data.length - (data.length % 128)), ending(data, 128));
  const view = new DataView(bytes.buffer);
  const word = (/** @type {bigint} */ value) => BigInt.asUintN(64, value);
  const turn = (/** @type {bigint} */ x, /** @type {bigint} */ n) => (x >> n) | word(x << (64n - n));
  let state = H512;
  for (let at = 0; at < bytes.length; at += 128) {
    const w = Array.from({ length: 16 }, (_, i) => view.getBigUint64(at + 8 * i));
    for (let i = 16; i < 80; i++) {
      const s0 = turn(w[i - 15], 1n) ^ turn(w[i - 15], 8n) ^ (w[i - 15] >> 7n);
      const s1 = turn(w[i - 2], 19n) ^ turn(w[i - 2], 61n) ^ (w[i - 2] >> 6n);
      w.push(word(w[i - 16] + s0 + w[i - 7] + s1));
    }
    let [a, b, c, d, e, f, g, h] = state;
    for (let i = 0; i < 80; i++) {
      const t1 = h + (turn(e, 14n) ^ turn(e, 18n) ^ turn(e, 41n)) + ((e & f) ^ (~e & g)) + K512[i] + w[i];
      const t2 = (turn(a, 28n) ^ turn(a, 34n) ^ turn(a, 39n)) + ((a & b) ^ (a & c) ^ (b & c));
      [h, g, f, e, d, c, b, a] = [g, f, e, word(d + t1), c, b, a, word(t1 + t2)];
    }
    state = [a, b, c, d, e, f, g, h].map((value, i) => word(value + state[i]));
  }
  const out = new DataView(new ArrayBuffer(64));
  state.forEach((value, i) => out.setBigUint64(8 * i, value));
  return new Uint8Array(out.buffer);
}
