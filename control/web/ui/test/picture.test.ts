import assert from "node:assert/strict";
import { test } from "node:test";
import { isolationOf, pictureOf, sizeOf, spoken, trafficOf } from "../src/map/picture.ts";
import type { MapEdge, MapGroup, WorldMap } from "../src/views.ts";

const group = (id: string, more: Partial<MapGroup> = {}): MapGroup => ({ id, name: id.replace(/^ns\//, ""), kind: "namespace", workloads: 4, pods: 4, vms: 0, nodes: 0, isolatedIngress: 0, isolatedEgress: 0, ...more });
const edge = (from: string, to: string, more: Partial<MapEdge> = {}): MapEdge => ({ from, to, pairs: 16, allowed: 16, partial: 0, depends: 0, traffic: ["TCP/443"], moreTraffic: 0, by: "rule", ...more });
const view = (groups: MapGroup[], edges: MapEdge[]): WorldMap => ({ revision: "1", by: "namespace", groups, edges, omitted: { groups: 0, edges: 0 } });

test("edges of a group to itself are told in it, and those of unknown groups are counted", () => {
  const p = pictureOf(view([group("ns/a"), group("ns/b")], [edge("ns/a", "ns/a"), edge("ns/a", "ns/b", { by: "default" }), edge("ns/a", "ns/gone")]), "");
  assert.equal(p.marks[0]!.inside?.from, "ns/a");
  assert.equal(p.marks[1]!.inside, undefined);
  assert.deepEqual(p.lines.map((l) => [l.from, l.to, l.dashed]), [[0, 1, true]]);
  assert.equal(p.stray, 1);
});

test("what is drawn of a name can turn nothing", () => {
  const p = pictureOf(view([group("ns/x", { name: "\u202Egpj.doc\n" })], []), "");
  assert.equal(p.marks[0]!.name, "[U+202E]gpj.doc[↵]");
  assert.match(spoken(p, 0), /^\[U\+202E\]/);
});

test("workloads stand with their namespace, or in the group that is open", () => {
  const w = group("pod/shop/web", { kind: "workload", workloads: 1, pods: 1 });
  assert.equal(pictureOf(view([w], []), "").marks[0]!.spot.cluster, "ns/shop");
  assert.equal(pictureOf(view([w], []), "label/app=web").marks[0]!.spot.cluster, "label/app=web");
  assert.equal(pictureOf(view([group("node/n1", { kind: "workload" })], []), "").marks[0]!.spot.cluster, "(nodes)");
});

test("words for size, isolation and traffic", () => {
  assert.equal(sizeOf(group("ns/a", { workloads: 6, pods: 3, vms: 1 })), "3 Pods, 1 VM, 2 others");
  assert.equal(sizeOf(group("hidden", { kind: "hidden", workloads: 0, pods: 0 })), "workloads that are not visible to you");
  assert.equal(isolationOf(group("ns/a")), "not isolated");
  assert.equal(isolationOf(group("ns/a", { isolatedIngress: 4, isolatedEgress: 1 })), "isolated: ingress all, egress 1 of 4");
  assert.equal(trafficOf(edge("a", "b", { traffic: ["TCP/1", "UDP/2"], moreTraffic: 3 })), "TCP/1, UDP/2 and 3 more");
});
