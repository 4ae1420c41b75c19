/**
 * Where a participant is kept: bytes by name. A write is there for good when it returns, or not at all, and replaces
 * only what the writer knows to be there: a second tab or process is found out before it does harm.
 */
import { equal } from "./bytes.js";
import { check } from "./errors.js";

/**
 * @typedef {object} Storage
 * @property {(name: string) => Promise<Uint8Array | undefined>} read
 * @property {(name: string, bytes: Uint8Array, before?: Uint8Array | null) => Promise<void>} write `before`: what must
 *   stand there (null: nothing); `state-locked` where it is something else. Without it whatever is there is replaced.
 * @property {() => Promise<string[]>} names
 * @property {(name: string) => Promise<void>} remove
 */

/** @param {Uint8Array | undefined} found @param {Uint8Array | null | undefined} before */
export function checkUnchanged(found, before) {
  const same = before === undefined || (before ? found && equal(found, before) : !found);
  check(same, "another tab or process uses this storage", "state-locked");
}

/** @template T @param {IDBRequest<T>} request @returns {Promise<T>} */
const done = (request) =>
  new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });

/**
 * A browser's: an IndexedDB database of this page's origin.
 *
 * @param {string} [name]
 * @returns {Promise<Storage>}
 */
export async function indexedDb(name = "dag-acfl") {
  const opening = indexedDB.open(name, 1);
  opening.onupgradeneeded = () => opening.result.createObjectStore("entries");
  const database = await done(opening);
  await navigator.storage?.persist?.(); // asks the browser not to clear it when the disk is full
  /** @template T @param {(entries: IDBObjectStore) => Promise<T>} change @returns {Promise<T>} */
  const changed = async (change) => {
    const transaction = database.transaction("entries", "readwrite", { durability: "strict" });
    const complete = new Promise((resolve, reject) => {
      transaction.oncomplete = resolve;
      transaction.onabort = () => reject(transaction.error);
    });
    const result = await change(transaction.objectStore("entries"));
    await complete;
    return result;
  };
  const entries = () => database.transaction("entries").objectStore("entries");
  return {
    read: (key) => done(entries().get(key)),
    write: (key, bytes, before) =>
      changed(async (store) => {
        checkUnchanged(await done(store.get(key)), before);
        store.put(bytes, key);
      }),
    names: async () => /** @type {string[]} */ (await done(entries().getAllKeys())),
    remove: (key) => changed(async (store) => void store.delete(key)),
  };
}
