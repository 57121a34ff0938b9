// What a cell of the matrix says, as in `isobar matrix`.
import { counted, plain } from "../text.ts";
import { list, type Matrix, type MatrixCell } from "../views.ts";

export type State = "allowed" | "denied" | "part" | "none" | "untold";

export function stateOf(c: MatrixCell | undefined): State {
  if (c === undefined) return "untold";
  if (c.pairs === 0) return "none";
  if (c.allowed === c.pairs) return "allowed";
  if (c.denied === c.pairs) return "denied";
  return "part";
}

const symbols: Record<State, string> = { allowed: ".", denied: "X", part: "/", none: "-", untold: " " };

// symbolOf is a cell in one or two characters; textOf also counts.
export function symbolOf(c: MatrixCell | undefined): string {
  return symbols[stateOf(c)] + (c && c.depends > 0 ? "?" : "");
}

const short = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 2 });

// roughly is n in so few characters that two of them fit in a cell.
function roughly(n: number): string {
  return n < 1000 ? String(n) : short.format(n);
}

export function textOf(c: MatrixCell | undefined): string {
  if (stateOf(c) !== "part" || !c) return symbolOf(c);
  const some = c.partial > 0 ? `${roughly(c.allowed)}+${roughly(c.partial)}` : roughly(c.allowed);
  return `${some}/${roughly(c.pairs)}${c.depends > 0 ? "?" : ""}`;
}

// wordsOf says it in words.
export function wordsOf(c: MatrixCell | undefined): string {
  const state = stateOf(c);
  if (!c || state === "untold") return "not told";
  const depends = c.depends > 0 ? `; ${counted(c.depends, "pair")} may have more, by what is not known` : "";
  switch (state) {
    case "none":
      return c.apart > 0 ? "no pairs with addresses of one family" : "no pairs";
    case "allowed":
      return `allowed for ${c.pairs === 1 ? "the only pair" : `all ${counted(c.pairs, "pair")}`}${depends}`;
    case "denied":
      return `denied for ${c.pairs === 1 ? "the only pair" : `all ${counted(c.pairs, "pair")}`}${depends}`;
  }
  const part = c.partial > 0 ? `, in part for ${c.partial}` : "";
  return `allowed for ${c.allowed} of ${counted(c.pairs, "pair")}${part}${depends}`;
}

// Lookup finds cells by row and column.
export class Lookup {
  readonly size: number;
  private readonly counts: readonly MatrixCell[];
  private readonly rows: readonly (readonly number[])[];

  constructor(m: Matrix) {
    this.size = list(m.groups).length;
    this.counts = list(m.counts).map(([pairs, apart, allowed, denied, partial, depends]) => ({ pairs, apart, allowed, denied, partial, depends }));
    this.rows = list(m.cells);
  }

  cell(row: number, column: number): MatrixCell | undefined {
    return this.counts[this.rows[row]?.[column] ?? -1];
  }
}

export type Point = { row: number; column: number };

// step is where a key leads in a grid of size × size, page rows or columns at a time; undefined if nowhere.
export function step(key: string, ctrl: boolean, at: Point, size: number, page: number): Point | undefined {
  const last = size - 1;
  const to = (row: number, column: number): Point => ({ row: Math.max(0, Math.min(last, row)), column: Math.max(0, Math.min(last, column)) });
  switch (key) {
    case "ArrowUp":
      return to(at.row - 1, at.column);
    case "ArrowDown":
      return to(at.row + 1, at.column);
    case "ArrowLeft":
      return to(at.row, at.column - 1);
    case "ArrowRight":
      return to(at.row, at.column + 1);
    case "PageUp":
      return to(at.row - page, at.column);
    case "PageDown":
      return to(at.row + page, at.column);
    case "Home":
      return ctrl ? to(0, 0) : to(at.row, 0);
    case "End":
      return ctrl ? to(last, last) : to(at.row, last);
  }
  return undefined;
}

// range is what of count things, each size long, stands between start and start + length, and some more on both sides. It
// moves by chunks, so that not every pixel of scrolling makes another.
export function range(start: number, length: number, size: number, count: number, chunk = 6): [from: number, to: number] {
  const from = Math.floor(start / size / chunk) * chunk - chunk;
  const to = Math.ceil((start + length) / size / chunk) * chunk + chunk;
  return [Math.max(0, Math.min(count, from)), Math.max(0, Math.min(count, to))];
}

// portFault says what is wrong with a port as one asks the matrix for it; "" for nothing.
export function portFault(s: string): string {
  const m = /^(TCP|UDP|SCTP)\/(\d{1,5})$/.exec(s);
  if (m) return Number(m[2]) >= 1 && Number(m[2]) <= 65535 ? "" : "A port is from 1 to 65535.";
  if (/^ICMP(\/\d{1,3}){0,2}$/.test(s)) return s.split("/").slice(1).every((n) => Number(n) <= 255) ? "" : "A type or code is from 0 to 255.";
  if (s === "IGMP") return "";
  return `Write TCP/443, UDP/53, ICMP or ICMP/8/0${s === "" ? "" : `, not ${plain(s)}`}.`;
}
