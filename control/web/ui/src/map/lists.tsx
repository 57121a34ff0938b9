// The map as lists: the same, for those who do not see it, for narrow pages, and where there is no WebGL.
import { useMemo } from "react";
import { Badge } from "../parts/badges.tsx";
import { Empty } from "../parts/states.tsx";
import { type Column, type Row, Table } from "../parts/table.tsx";
import { Text } from "../parts/text.tsx";
import { count } from "../text.ts";
import type { MapEdge } from "../views.ts";
import { canOpen, type Ways } from "./panels.tsx";
import { groupKind, isolationOf, type Mark, nameOfGroup, type Picture, sizeOf, trafficOf } from "./picture.ts";

type GroupRow = Mark & { out: number; into: number };
type EdgeRow = { edge: MapEdge; from: string; to: string };

export function GroupList({ picture, within, ways, dim }: { picture: Picture; within: string; ways: Ways; dim: boolean }) {
  const rows = useMemo((): Row<GroupRow>[] => {
    const [out, into] = [new Int32Array(picture.marks.length), new Int32Array(picture.marks.length)];
    for (const l of picture.lines) {
      out[l.from]!++;
      into[l.to]!++;
    }
    return picture.marks.map((m, i) => ({ key: m.group.id, item: { ...m, out: out[i]!, into: into[i]! } }));
  }, [picture]);
  const columns = useMemo(
    (): Column<GroupRow>[] => [
      {
        id: "name",
        head: "Group",
        width: "auto",
        cell: (r) => (
          <button type="button" className="link row-link" onClick={() => ways.node(r.group.id)}>
            <Text max={80}>{nameOfGroup(r.group)}</Text>
          </button>
        ),
      },
      { id: "kind", head: "Kind", width: "130px", cell: (r) => <span className="quiet-text">{groupKind(r.group)}</span> },
      { id: "size", head: "Workloads", width: "220px", cell: (r) => sizeOf(r.group) },
      { id: "isolation", head: "Isolation", width: "300px", minor: true, cell: (r) => <span className="quiet-text">{isolationOf(r.group) || "–"}</span> },
      { id: "out", head: "Reaches", width: "80px", isNumber: true, cell: (r) => count(r.out) },
      { id: "into", head: "Reached by", width: "96px", isNumber: true, cell: (r) => count(r.into) },
      {
        id: "open",
        head: "Open",
        width: "80px",
        cell: (r) =>
          canOpen(r.group) && r.group.id !== within ? (
            <button type="button" className="link above" aria-label={`Open ${r.name}: its workloads`} onClick={() => ways.open(r.group.id)}>
              Open
            </button>
          ) : null,
      },
    ],
    [ways, within],
  );
  return <Table label="Groups" columns={columns} rows={rows} total={rows.length} dim={dim} />;
}

export function EdgeList({ picture, ways, dim }: { picture: Picture; ways: Ways; dim: boolean }) {
  const rows = useMemo((): Row<EdgeRow>[] => {
    const name = (i: number) => nameOfGroup(picture.marks[i]!.group);
    const inside = picture.marks.flatMap((m, i): Row<EdgeRow>[] => (m.inside ? [{ key: `${m.group.id} itself`, item: { edge: m.inside, from: name(i), to: name(i) } }] : []));
    return inside.concat(picture.lines.map((l) => ({ key: `${l.edge.from} ${l.edge.to}`, item: { edge: l.edge, from: name(l.from), to: name(l.to) } })));
  }, [picture]);
  const columns = useMemo(
    (): Column<EdgeRow>[] => [
      {
        id: "name",
        head: "From and to",
        width: "auto",
        cell: (r) => (
          <button type="button" className="link row-link" onClick={() => ways.edge(r.edge.from, r.edge.to)}>
            <Text max={50}>{r.from}</Text> → {r.edge.from === r.edge.to ? "itself" : <Text max={50}>{r.to}</Text>}
          </button>
        ),
      },
      { id: "traffic", head: "Traffic", width: "34%", cell: (r) => <span className="mono one-line"><Text max={90}>{trafficOf(r.edge)}</Text></span> },
      {
        id: "pairs",
        head: "Pairs: all, some traffic",
        width: "190px",
        isNumber: true,
        cell: (r) => `${count(r.edge.allowed)}, ${count(r.edge.partial)} of ${count(r.edge.pairs)}`,
      },
      { id: "by", head: "By", width: "110px", cell: (r) => (r.edge.by === "rule" ? <Badge tone="good" icon="check">rule</Badge> : <Badge tone="warn" icon="dash">default</Badge>) },
    ],
    [ways],
  );
  if (rows.length === 0) return <Empty title="Nothing reaches anything by rule" />;
  return <Table label="Who may reach whom" columns={columns} rows={rows} total={rows.length} dim={dim} />;
}
