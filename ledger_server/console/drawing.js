/** What makes a digit of 8 x 8 pixels of what a person draws, and how a camera that hangs otherwise sees it. */
import { SIDE } from "./digits.js";

/** The 8 x 8 pixels of the data set are counts of a bitmap's 4 x 4 blocks; so are those of a drawing. */
const FINE = 32;
const BLOCK = FINE / SIDE;
const PEN = 5; // so a drawing is as dark as a digit of the data set, 0.3 of its pixels
const [HEIGHT, WIDTH] = [FINE - PEN, 18];

/** @typedef {[number, number][]} Stroke Points from left and top, in any unit. */

/**
 * A drawing moved to the middle, as high or as wide as digits of the data set are.
 *
 * @param {Stroke[]} strokes At least one point.
 * @returns {Float32Array} 64 pixels from 0 to 1, row by row.
 */
export function digitOf(strokes) {
  const points = strokes.flat();
  const [left, right] = [Math.min(...points.map(([x]) => x)), Math.max(...points.map(([x]) => x))];
  const [top, bottom] = [Math.min(...points.map(([, y]) => y)), Math.max(...points.map(([, y]) => y))];
  const scale = Math.min(HEIGHT / Math.max(bottom - top, 1e-6), WIDTH / Math.max(right - left, 1e-6));
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = FINE;
  const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  pen.lineWidth = PEN;
  pen.lineCap = pen.lineJoin = "round";
  for (const stroke of strokes) {
    pen.beginPath();
    for (const [x, y] of [...stroke, stroke[stroke.length - 1]]) // so that a dot is one
      pen.lineTo(FINE / 2 + (x - (left + right) / 2) * scale, FINE / 2 + (y - (top + bottom) / 2) * scale);
    pen.stroke();
  }
  const { data } = pen.getImageData(0, 0, FINE, FINE);
  const pixels = new Float32Array(SIDE * SIDE);
  for (let row = 0; row < FINE; row++)
    for (let column = 0; column < FINE; column++)
      if (data[4 * (row * FINE + column) + 3] > 127)
        pixels[Math.floor(row / BLOCK) * SIDE + Math.floor(column / BLOCK)] += 1 / BLOCK ** 2;
  return pixels;
}

/** A digit as it looks turned counter-clockwise. @param {Float32Array} pixels @param {number} degrees A multiple of 90. */
export function turned(pixels, degrees) {
  let now = pixels;
  for (let turns = degrees / 90; turns > 0; turns--)
    now = now.map((_, place) => now[(place % SIDE) * SIDE + SIDE - 1 - Math.floor(place / SIDE)]);
  return now;
}

/** Show digits side by side. @param {HTMLCanvasElement} canvas @param {Float32Array[]} digits @param {number} columns */
export function paint(canvas, digits, columns) {
  const across = Math.min(columns, digits.length);
  canvas.width = across * (SIDE + 1) - 1;
  canvas.height = Math.ceil(digits.length / columns) * (SIDE + 1) - 1;
  const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  digits.forEach((pixels, at) => {
    const [left, top] = [(at % columns) * (SIDE + 1), Math.floor(at / columns) * (SIDE + 1)];
    pixels.forEach((value, place) => {
      const grey = Math.round(255 * (1 - value));
      pen.fillStyle = `rgb(${grey} ${grey} ${grey})`;
      pen.fillRect(left + (place % SIDE), top + Math.floor(place / SIDE), 1, 1);
    });
  });
}
