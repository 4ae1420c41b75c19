/**
 * SHA-256 and Ed25519: the platform's, or our own where it has none. A page served by plain HTTP under a host's name is
 * no secure context and has no `crypto.subtle`; older browsers have no Ed25519. Ours are loaded where they are needed.
 */
import { hex, unhex } from "./bytes.js";
import { check } from "./errors.js";

const ofNode = "node:crypto"; // not written in the import, so that bundlers for browsers leave it alone

/** Node 18 has it, but not as a global. @type {Crypto} */
export const crypto = globalThis.crypto ?? (await import(ofNode)).webcrypto;

const { subtle } = crypto;
const own = () => import("./ed25519.js");
const PKCS8 = "302e020100300506032b657004220420";

/** SHA-256 as 64 hexadecimal digits. @param {Uint8Array} data */
export async function digestOf(data) {
  const digest = subtle
    ? await subtle.digest("SHA-256", /** @type {BufferSource} */ (data))
    : (await import("./sha2.js")).sha256(data);
  return hex(new Uint8Array(digest));
}

/** 64 digits of random. */
export const random = () => hex(crypto.getRandomValues(new Uint8Array(32)));

/** An Ed25519 seed as the platform's key. @param {string} seed 64 digits */
const loaded = (seed) => subtle.importKey("pkcs8", unhex(PKCS8 + seed), "Ed25519", true, ["sign"]);

/** @param {string} seed 64 digits @returns {Promise<string>} 64 digits */
export async function publicKeyOf(seed) {
  try {
    const { x = "" } = await subtle.exportKey("jwk", await loaded(seed));
    return hex(Uint8Array.from(atob(x.replace(/-/g, "+").replace(/_/g, "/")), (char) => char.charCodeAt(0)));
  } catch {
    return hex((await own()).publicKeyOf(unhex(seed)));
  }
}

/** @param {string} seed 64 digits @param {Uint8Array} message @returns {Promise<string>} 128 digits */
export async function sign(seed, message) {
  try {
    return hex(new Uint8Array(await subtle.sign("Ed25519", await loaded(seed), /** @type {BufferSource} */ (message))));
  } catch {
    return hex((await own()).sign(unhex(seed), message));
  }
}

const P = 2n ** 255n - 19n;

/**
 * Whether a key is of small order or not canonical: for such keys a forged signature verifies. Points of order 8 are the
 * zeros of d y⁴ + 2 y² - 1, with d = -121665 / 121666.
 *
 * @param {Uint8Array} key
 */
function isWeak(key) {
  const y = BigInt(`0x${hex(Uint8Array.from(key).reverse())}`) & ((1n << 255n) - 1n);
  return y >= P || [0n, 1n, P - 1n].includes(y) || (121665n * y ** 4n - 243332n * y * y + 121666n) % P === 0n;
}

/**
 * @param {string} key 64 digits
 * @param {Uint8Array} message
 * @param {string} signature 128 digits
 */
export async function checkSignature(key, message, signature) {
  const [whose, signed] = [unhex(key), unhex(signature)];
  const sound = whose.length === 32 && signed.length === 64 && !isWeak(whose);
  check(sound && (await verified(whose, message, signed)), "a signature does not verify", "signature-invalid");
}

/** @param {Uint8Array<ArrayBuffer>} key @param {Uint8Array} message @param {Uint8Array<ArrayBuffer>} signature */
async function verified(key, message, signature) {
  try {
    const loaded = await subtle.importKey("raw", key, "Ed25519", false, ["verify"]);
    return await subtle.verify("Ed25519", loaded, signature, /** @type {BufferSource} */ (message));
  } catch {
    return (await own()).verify(key, message, signature);
  }
}
