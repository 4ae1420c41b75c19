/**
 * What can go wrong. `code` is the contract: of a refusal that of the server's problem (docs/protocol.md lists them), or
 * what a server would say of the same bytes; else `server-unavailable`, `answer-invalid`, `state-locked`, `state-corrupt`.
 */
export class DagAcflError extends Error {
  /**
   * @param {string} code
   * @param {string} message
   * @param {number} [status] HTTP status of a refusal.
   * @param {Record<string, any>} [problem] The refusal's members, such as `next_sequence`.
   */
  constructor(code, message, status, problem = {}) {
    super(message);
    this.code = code;
    this.status = status;
    this.problem = problem;
  }
}

/** @param {unknown} holds @param {string} message @param {string} [code] @returns {asserts holds} */
export function check(holds, message, code = "digest-mismatch") {
  if (!holds) throw new DagAcflError(code, message);
}
