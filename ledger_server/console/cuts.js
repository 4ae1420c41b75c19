/** How good a cut before each ranked candidate would be, as the selector in use sees it. */

/**
 * @typedef {object} Cuts
 * @property {string} name What the scores are, in words; "" where the selector has none.
 * @property {(number | null)[]} scores One for each candidate.
 */

/**
 * @param {string} selector Its name. @param {{update_similarity: number, score: number | null}[]} candidates As ranked.
 * @returns {Cuts}
 */
export function cutsOf(selector, candidates) {
  const values = candidates.map((each) => each.update_similarity);
  if (candidates.some((each) => each.score !== null))
    return { name: "probability that a new group begins here (BEAST)", scores: candidates.map((each) => each.score) };
  if (selector === "least-squares")
    return { name: "share of the spread that a cut before it explains (least squares)", scores: explained(values) };
  if (selector === "largest-gap")
    return { name: "drop from the one before (largest gap)", scores: values.map((value, at) => (at ? values[at - 1] - value : null)) };
  return { name: "", scores: values.map(() => null) };
}

/**
 * Of the values' sum of squares about their mean, the share that goes when they are cut in two before each, and each
 * part has a mean of its own; none before the first.
 *
 * @param {number[]} values
 */
function explained(values) {
  const whole = values.reduce((sum, each) => sum + each, 0);
  const mean = whole / values.length;
  const spread = values.reduce((sum, each) => sum + (each - mean) ** 2, 0);
  let before = 0;
  return values.map((value, at) => {
    const [left, right] = [before / at, (whole - before) / (values.length - at)];
    before += value;
    return at && spread ? (at * (left - mean) ** 2 + (values.length - at) * (right - mean) ** 2) / spread : null;
  });
}
