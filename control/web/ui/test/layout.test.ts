import assert from "node:assert/strict";
import { test } from "node:test";
import { hash, place, type Pull, type Spot } from "../src/map/layout.ts";

// world has n spots, each fifth in a cluster of eight, and edges between them.
function world(n: number): { spots: Spot[]; pulls: Pull[] } {
  const spots = Array.from({ length: n }, (_, i): Spot => ({ id: `ns/${i}`, radius: 8 + (i % 7) * 5, cluster: i % 5 === 0 ? `c${i % 8}` : "" }));
  spots.push({ id: "outside", radius: 14, cluster: "", place: "above" }, { id: "hidden", radius: 14, cluster: "", place: "below" });
  const pulls = Array.from({ length: 2 * n }, (_, i) => ({ from: Math.floor(hash(`${i}f`) * n), to: Math.floor(hash(`${i}t`) * n) }));
  return { spots, pulls };
}

const at = (p: Float64Array, i: number): [number, number] => [p[2 * i]!, p[2 * i + 1]!];

test("the same state is the same picture, in whatever order it arrives", async () => {
  for (const n of [40, 900]) {
    const { spots, pulls } = world(n);
    const order = spots.map((_, i) => i).sort((a, b) => hash(`${a}o`) - hash(`${b}o`));
    const where = new Map(order.map((old, now) => [old, now]));
    const a = await place(spots, pulls);
    const b = await place(order.map((i) => spots[i]!), pulls.map((p) => ({ from: where.get(p.from)!, to: where.get(p.to)! })).reverse());
    for (let i = 0; i < spots.length; i++) {
      const [p, q] = [at(a, i), at(b, where.get(i)!)];
      assert.ok(Math.abs(p[0] - q[0]) < 1e-6 && Math.abs(p[1] - q[1]) < 1e-6, `${n}: ${spots[i]!.id} is at ${p} and at ${q}`);
    }
  }
});

test("no two marks cover each other", async () => {
  for (const n of [2, 40, 290, 900]) {
    const { spots, pulls } = world(n);
    const p = await place(spots, pulls);
    for (let i = 0; i < spots.length; i++) {
      for (let j = i + 1; j < spots.length; j++) {
        const [a, b] = [at(p, i), at(p, j)];
        const [far, want] = [Math.hypot(a[0] - b[0], a[1] - b[1]), spots[i]!.radius + spots[j]!.radius];
        assert.ok(far > want * 0.98, `${n}: ${spots[i]!.id} and ${spots[j]!.id} are ${far} apart, want ${want}`);
      }
    }
  }
});

test("what is no group stands apart, and nothing at all is no fault", async () => {
  const { spots, pulls } = world(60);
  const p = await place(spots, pulls);
  const ys = spots.slice(0, -2).map((_, i) => p[2 * i + 1]!);
  assert.ok(p[2 * 60 + 1]! > Math.max(...ys) && p[2 * 61 + 1]! < Math.min(...ys));
  assert.equal((await place([], [])).length, 0);
});

test("the work gives way between its parts, and can be given up", async () => {
  const { spots, pulls } = world(290);
  let asked = 0;
  await place(spots, pulls, () => void asked++);
  assert.ok(asked >= 260, `it was asked ${asked} times`);
  await assert.rejects(place(spots, pulls, () => Promise.reject(new Error("over"))), /over/);
});
