// What is at a point of the map. The WebGL library would read it back from the pixels, and hold the page up until they are drawn: on a
// machine without a graphics processor that is longer than to look at every mark.
import type { Picture } from "./picture.ts";

// pickMark is the mark at x, y, or near it by some slack; -1 for none. All are lengths of the layout.
export function pickMark(picture: Picture, at: Float64Array, x: number, y: number, slack: number): number {
  let [best, least] = [-1, slack];
  for (let i = 0; i < picture.marks.length; i++) {
    const r = picture.marks[i]!.spot.radius;
    const [dx, dy] = [at[2 * i]! - x, at[2 * i + 1]! - y];
    const reach = r + slack;
    if (dx > reach || dx < -reach || dy > reach || dy < -reach) continue;
    const out = Math.sqrt(dx * dx + dy * dy) - r;
    if (out < least) [best, least] = [i, out];
  }
  return best;
}

// laneOf is how far aside of the middle a line runs, in pixels: those of each direction have a lane of their own.
export function laneOf(width: number): number {
  return Math.min(width + 1, 3);
}

// pickLine is the line nearest to x, y, if it is as near as some pixels; -1 for none. pixel is the length of one.
export function pickLine(picture: Picture, at: Float64Array, x: number, y: number, pixel: number): number {
  let [best, least] = [-1, Infinity];
  for (let i = 0; i < picture.lines.length; i++) {
    const l = picture.lines[i]!;
    const [fx, fy] = [at[2 * l.from]!, at[2 * l.from + 1]!];
    const [vx, vy] = [at[2 * l.to]! - fx, at[2 * l.to + 1]! - fy];
    const far = Math.sqrt(vx * vx + vy * vy);
    if (far === 0) continue;
    const along = ((x - fx) * vx + (y - fy) * vy) / far;
    if (along < picture.marks[l.from]!.spot.radius || along > far - picture.marks[l.to]!.spot.radius) continue;
    const aside = Math.abs(((y - fy) * vx - (x - fx) * vy) / far + laneOf(l.width) * pixel) - (l.width / 2) * pixel;
    if (aside < least && aside < 3.5 * pixel) [best, least] = [i, aside];
  }
  return best;
}
