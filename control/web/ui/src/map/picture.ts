// What the map draws of a view.
import { groupName, kindName as policyKindName } from "../ids.ts";
import { counted, plain, shortened } from "../text.ts";
import { list, type GroupKind, type MapEdge, type MapGroup, type WorldMap } from "../views.ts";
import type { Pull, Spot } from "./layout.ts";

export type Shape = "circle" | "square" | "hexagon" | "diamond" | "dashed" | "ring";
export type Tone = "group" | "vm" | "node" | "apart";

export type Mark = {
  group: MapGroup;
  name: string; // safe to draw
  spot: Spot;
  shape: Shape;
  tone: Tone;
  ingress: number; // the share of its workloads that is isolated
  egress: number;
  inside?: MapEdge; // what passes between its own workloads
};
export type Line = { edge: MapEdge; from: number; to: number; width: number; dashed: boolean };
export type Picture = { marks: Mark[]; lines: Line[]; indexOf: Map<string, number> };

const kinds: Record<GroupKind, string> = {
  namespace: "namespace", network: "network", label: "label", nodes: "Nodes", workload: "workload", outside: "outside", hidden: "not visible to you",
};

export function groupKind(g: MapGroup): string {
  if (g.kind === "workload") {
    const prefix = g.id.split("/", 1)[0]!;
    return { pod: "Pod", node: "Node", ee: g.vms > 0 ? "VM" : "external host", service: "cloud service" }[prefix] ?? "workload";
  }
  return kinds[g.kind] ?? policyKindName(g.kind);
}

function shapeOf(g: MapGroup): Shape {
  switch (g.kind) {
    case "outside":
      return "ring";
    case "hidden":
      return "dashed";
    case "network":
    case "nodes":
      return "hexagon";
    case "label":
      return "diamond";
    case "workload":
      return g.vms > 0 ? "square" : g.nodes > 0 ? "hexagon" : g.pods > 0 ? "circle" : "diamond";
  }
  return "circle";
}

function toneOf(g: MapGroup): Tone {
  if (g.kind === "outside" || g.kind === "hidden") return "apart";
  if (g.workloads > 0 && g.vms === g.workloads) return "vm";
  if (g.workloads > 0 && g.nodes === g.workloads) return "node";
  return "group";
}

// clusterOf says with whom a group stands: workloads with those of their namespace, or of the group that is open.
function clusterOf(g: MapGroup, within: string): string {
  if (g.kind !== "workload") return "";
  if (within !== "") return within;
  const parts = g.id.split("/");
  return parts.length > 2 ? `ns/${parts[1]}` : "(nodes)";
}

export function nameOfGroup(g: { id: string; name: string }): string {
  return g.id === "outside" ? "Outside" : groupName(g);
}

// pictureOf never fails: an edge of a group that is not there is left out, and counted in stray.
export function pictureOf(view: WorldMap, within: string): Picture & { stray: number } {
  const groups = list(view.groups);
  const indexOf = new Map<string, number>();
  const marks = groups.map((group, i): Mark => {
    indexOf.set(group.id, i);
    const share = (n: number) => (group.workloads > 0 ? Math.min(1, n / group.workloads) : 0);
    const radius = group.kind === "workload" ? 7 : group.workloads === 0 ? 14 : Math.min(64, 10 + 2.4 * Math.sqrt(group.workloads));
    const spot: Spot = { id: group.id, radius, cluster: clusterOf(group, within) };
    if (group.kind === "outside") spot.place = "above";
    if (group.kind === "hidden") spot.place = "below";
    return {
      group, name: plain(shortened(nameOfGroup(group), 36)), spot, shape: shapeOf(group), tone: toneOf(group),
      ingress: share(group.isolatedIngress), egress: share(group.isolatedEgress),
    };
  });
  const lines: Line[] = [];
  let stray = 0;
  for (const edge of list(view.edges)) {
    const [from, to] = [indexOf.get(edge.from), indexOf.get(edge.to)];
    if (from === undefined || to === undefined) stray++;
    else if (from === to) marks[from]!.inside = edge;
    else lines.push({ edge, from, to, width: Math.min(4, 1 + 0.55 * Math.log10(Math.max(1, edge.allowed + edge.partial))), dashed: edge.by === "default" });
  }
  return { marks, lines, indexOf, stray };
}

export function pullsOf(p: Picture): Pull[] {
  return p.lines.map(({ from, to }) => ({ from, to }));
}

// isArrangedAlike says whether two pictures have the same layout.
export function isArrangedAlike(a: Picture, b: Picture): boolean {
  return (
    a.marks.length === b.marks.length &&
    a.lines.length === b.lines.length &&
    a.marks.every((m, i) => m.spot.id === b.marks[i]!.spot.id && m.spot.radius === b.marks[i]!.spot.radius && m.spot.cluster === b.marks[i]!.spot.cluster) &&
    a.lines.every((l, i) => l.from === b.lines[i]!.from && l.to === b.lines[i]!.to)
  );
}

// sizeOf says how many workloads a group has, and of which kinds.
export function sizeOf(g: MapGroup): string {
  if (g.kind === "outside") return "addresses that no workload has";
  if (g.kind === "hidden") return g.workloads > 0 ? counted(g.workloads, "workload") : "workloads that are not visible to you";
  const parts = [g.pods > 0 && counted(g.pods, "Pod"), g.vms > 0 && counted(g.vms, "VM"), g.nodes > 0 && counted(g.nodes, "Node")].filter((s) => s !== false);
  const others = g.workloads - g.pods - g.vms - g.nodes;
  if (others > 0) parts.push(counted(others, parts.length > 0 ? "other" : "workload"));
  return parts.join(", ") || "no workload";
}

// isolationOf says in words how many of its workloads drop what no rule allows.
export function isolationOf(g: MapGroup): string {
  const of = (n: number) => (n === 0 ? "none" : n < g.workloads ? `${n} of ${g.workloads}` : g.workloads === 1 ? "yes" : "all");
  if (g.workloads === 0 || g.kind === "hidden") return "";
  if (g.isolatedIngress === 0 && g.isolatedEgress === 0) return "not isolated";
  return `isolated: ingress ${of(g.isolatedIngress)}, egress ${of(g.isolatedEgress)}`;
}

// trafficOf is the traffic of an edge as one line.
export function trafficOf(e: MapEdge): string {
  const shown = list(e.traffic).join(", ");
  return e.moreTraffic > 0 ? `${shown} and ${e.moreTraffic} more` : shown;
}

// spoken describes a group to those who do not see it.
export function spoken(p: Picture, i: number): string {
  const m = p.marks[i]!;
  const [out, into] = [p.lines.filter((l) => l.from === i).length, p.lines.filter((l) => l.to === i).length];
  return [m.name, groupKind(m.group), sizeOf(m.group), isolationOf(m.group), `reaches ${counted(out, "group")}, reached by ${into}`].filter((s) => s !== "").join(", ");
}
