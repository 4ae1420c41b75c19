/** node client.js SERVER FOLDER TARGET STEPS [TOKEN]: some steps, and what came of them as JSON. */
import { folder } from "../../src/folder.js";
import { take } from "./steps.js";

const [server, path, target, steps, token] = process.argv.slice(2);
const storage = await folder(path);
console.log(JSON.stringify(await take(server, { storage, target: Number(target), steps: Number(steps), token })));
