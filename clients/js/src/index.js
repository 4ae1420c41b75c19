export { LedgerClient } from "./client.js";
export { Participant } from "./participant.js";
export { indexedDb } from "./storage.js";
export { DagAcflError } from "./errors.js";
export { layoutOf, encodeModel, decodeModel } from "./model.js";
