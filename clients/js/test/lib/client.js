/** node client.js SERVER FOLDER TARGET STEPS: some steps, and what came of them as JSON. */
import { folder } from "../../src/folder.js";
import { take } from "./steps.js";

const [server, path, target, steps] = process.argv.slice(2);
console.log(
  JSON.stringify(await take(server, { storage: await folder(path), target: Number(target), steps: Number(steps) })),
);
