import assert from "node:assert/strict";
import { test } from "node:test";
import { laneOf, pickLine, pickMark } from "../src/map/pick.ts";
import { pictureOf } from "../src/map/picture.ts";
import type { MapEdge, MapGroup } from "../src/views.ts";

const group = (id: string): MapGroup => ({ id, name: id, kind: "workload", workloads: 1, pods: 1, vms: 0, nodes: 0, isolatedIngress: 0, isolatedEgress: 0 });
const edge = (from: string, to: string): MapEdge => ({ from, to, pairs: 1, allowed: 1, partial: 0, depends: 0, traffic: [], moreTraffic: 0, by: "rule" });
// Two marks of radius 7, 100 apart, with a line each way.
const p = pictureOf({ revision: "", by: "workload", groups: [group("pod/a/x"), group("pod/a/y")], edges: [edge("pod/a/x", "pod/a/y"), edge("pod/a/y", "pod/a/x")], omitted: { groups: 0, edges: 0 } }, "");
const at = new Float64Array([0, 0, 100, 0]);

test("a mark is what is at a point, or next to it", () => {
  assert.equal(pickMark(p, at, 3, 3, 2), 0);
  assert.equal(pickMark(p, at, 8.5, 0, 2), 0);
  assert.equal(pickMark(p, at, 50, 0, 2), -1);
  assert.equal(pickMark(p, at, 94, 0, 2), 1);
});

test("each direction has a lane, to its right", () => {
  const lane = laneOf(p.lines[0]!.width);
  assert.equal(pickLine(p, at, 50, -lane, 1), 0);
  assert.equal(pickLine(p, at, 50, lane, 1), 1);
  assert.equal(pickLine(p, at, 50, 20, 1), -1);
  assert.equal(pickLine(p, at, 120, -lane, 1), -1); // behind its end
});
