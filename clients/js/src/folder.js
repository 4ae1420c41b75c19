/** Node's storage: a folder for this user only, a file for each entry. */
import { mkdir, open, readFile, readdir, rename, rm } from "node:fs/promises";
import { join } from "node:path";
import { checkUnchanged } from "./storage.js";

/**
 * @param {string} path Made where it is missing.
 * @returns {Promise<import("./storage.js").Storage>}
 */
export async function folder(path) {
  await mkdir(path, { recursive: true, mode: 0o700 });
  const read = async (/** @type {string} */ name) => {
    try {
      return new Uint8Array(await readFile(join(path, name)));
    } catch (error) {
      if (/** @type {NodeJS.ErrnoException} */ (error).code === "ENOENT") return undefined;
      throw error;
    }
  };
  return {
    read,
    async write(name, bytes, before) {
      const half = join(path, `${name}.${process.pid}.half`);
      const file = await open(half, "w", 0o600);
      try {
        await file.writeFile(bytes);
        await file.sync();
      } finally {
        await file.close();
      }
      if (before !== undefined) checkUnchanged(await read(name), before);
      await rename(half, join(path, name));
      if (process.platform === "win32") return; // folders cannot be opened there
      const parent = await open(path);
      await parent.sync().finally(() => parent.close());
    },
    names: () => readdir(path),
    remove: (name) => rm(join(path, name), { force: true }),
  };
}
