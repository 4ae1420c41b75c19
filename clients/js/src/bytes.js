const encoder = new TextEncoder();

/** @param {string} text */
export const utf8 = (text) => encoder.encode(text);

/** What JSON of others says; undefined where it is no object. @param {Uint8Array} bytes @returns {Record<string, any> | undefined} */
export function parsed(bytes) {
  let json;
  try {
    json = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
  } catch {} // the caller says so
  return json instanceof Object ? json : undefined;
}

/** @param {Uint8Array} bytes */
export const hex = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");

/** @param {string} digits An even number of hexadecimal digits. */
export const unhex = (digits) => Uint8Array.from(String(digits).match(/../g) ?? [], (pair) => parseInt(pair, 16));

/** Whether it is 64 lowercase hexadecimal digits. @param {string} text */
export const isHex = (text) => /^[0-9a-f]{64}$/.test(text);

/** @param {...Uint8Array} pieces */
export function concat(...pieces) {
  const whole = new Uint8Array(pieces.reduce((size, piece) => size + piece.length, 0));
  let at = 0;
  for (const piece of pieces) {
    whole.set(piece, at);
    at += piece.length;
  }
  return whole;
}

/** Eight bytes, big-endian. @param {number | bigint} number */
export function uint64(number) {
  const bytes = new Uint8Array(8);
  new DataView(bytes.buffer).setBigUint64(0, BigInt(number));
  return bytes;
}

/** @param {Uint8Array} a @param {Uint8Array} b */
export const equal = (a, b) => a.length === b.length && a.every((byte, at) => byte === b[at]);
