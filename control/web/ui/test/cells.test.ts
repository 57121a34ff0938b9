import assert from "node:assert/strict";
import { test } from "node:test";
import { Lookup, portFault, range, stateOf, step, symbolOf, textOf, wordsOf } from "../src/matrix/cells.ts";
import type { MatrixCell } from "../src/views.ts";

const cell = (more: Partial<MatrixCell>): MatrixCell => ({ pairs: 4, apart: 0, allowed: 0, denied: 0, partial: 0, depends: 0, ...more });

test("cells say what the matrix of the command says", () => {
  for (const [c, state, symbol, text] of [
    [cell({ allowed: 4 }), "allowed", ".", "."],
    [cell({ denied: 4 }), "denied", "X", "X"],
    [cell({ denied: 4, depends: 2 }), "denied", "X?", "X?"],
    [cell({ allowed: 3, denied: 1 }), "part", "/", "3/4"],
    [cell({ allowed: 3, partial: 1, depends: 1 }), "part", "/?", "3+1/4?"],
    [cell({ pairs: 6059, allowed: 1234, denied: 4825 }), "part", "/", "1.2K/6.1K"],
    [cell({ pairs: 0, apart: 9 }), "none", "-", "-"],
    [undefined, "untold", " ", " "],
  ] as const) {
    assert.deepEqual([stateOf(c), symbolOf(c), textOf(c)], [state, symbol, text]);
  }
});

test("cells in words", () => {
  assert.equal(wordsOf(cell({ allowed: 4 })), "allowed for all 4 pairs");
  assert.equal(wordsOf(cell({ pairs: 1, denied: 1 })), "denied for the only pair");
  assert.equal(wordsOf(cell({ allowed: 1, partial: 2, denied: 1, depends: 1 })), "allowed for 1 of 4 pairs, in part for 2; 1 pair may have more, by what is not known");
  assert.equal(wordsOf(cell({ pairs: 0, apart: 3 })), "no pairs with addresses of one family");
  assert.equal(wordsOf(undefined), "not told");
});

test("cells are found by row and column, and what is out of the matrix is none", () => {
  const groups = ["a", "b"].map((id) => ({ id, name: id, workloads: 2 }));
  const l = new Lookup({ revision: "", by: "namespace", ports: [], groups, counts: [[4, 0, 0, 4, 0, 0], [4, 1, 3, 0, 1, 2]], cells: [[0, -1], [1, 7]], omitted: { groups: 0 } });
  assert.deepEqual(l.cell(1, 0), { pairs: 4, apart: 1, allowed: 3, denied: 0, partial: 1, depends: 2 });
  assert.equal(l.cell(0, 0)?.denied, 4);
  for (const [row, column] of [[0, 1], [1, 1], [0, 2], [2, 0], [-1, 0]] as const) assert.equal(l.cell(row, column), undefined);
});

test("keys lead through the grid, and not out of it", () => {
  const at = { row: 5, column: 0 };
  assert.deepEqual(step("ArrowLeft", false, at, 10, 4), at);
  assert.deepEqual(step("PageDown", false, at, 10, 4), { row: 9, column: 0 });
  assert.deepEqual(step("End", false, at, 10, 4), { row: 5, column: 9 });
  assert.deepEqual(step("Home", true, at, 10, 4), { row: 0, column: 0 });
  assert.equal(step("a", false, at, 10, 4), undefined);
});

test("what is in sight is in the range, which is never out of the whole", () => {
  assert.deepEqual(range(0, 280, 28, 300), [0, 18]);
  assert.deepEqual(range(280, 280, 28, 300), [0, 30]);
  assert.deepEqual(range(8120, 280, 28, 300), [282, 300]);
  assert.deepEqual(range(8120, 280, 28, 12), [12, 12]);
});

test("ports", () => {
  for (const p of ["TCP/443", "UDP/53", "SCTP/1", "ICMP", "ICMP/8", "ICMP/8/0", "IGMP"]) assert.equal(portFault(p), "", p);
  for (const p of ["", "443", "TCP/0", "TCP/65536", "ICMP/300", "tcp/1", "TCP/1-2", "TCP/1 "]) assert.notEqual(portFault(p), "", p);
});
