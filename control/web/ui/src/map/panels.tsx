// What the map tells of a group or of an edge.
import { type ReactNode, useState } from "react";
import { Link } from "wouter";
import { useView } from "../data.ts";
import { endOf, pathOf } from "../ids.ts";
import { Badge, Verdict } from "../parts/badges.tsx";
import { Some } from "../parts/facts.tsx";
import { Icon } from "../parts/icon.tsx";
import { SidePanel } from "../parts/panel.tsx";
import { WorkloadRef } from "../parts/refs.tsx";
import { Shown } from "../parts/states.tsx";
import { Text } from "../parts/text.tsx";
import { link } from "../route.ts";
import { count, counted } from "../text.ts";
import { type Cell, list, type MapEdge, type MapGroup } from "../views.ts";
import { groupKind, isolationOf, type Line, nameOfGroup, type Picture, sizeOf, trafficOf } from "./picture.ts";

export type Ways = {
  node: (id: string) => void;
  edge: (from: string, to: string) => void;
  open: (id: string) => void;
  close: () => void;
};

type Props = { picture: Picture; by: string; within: string; ways: Ways; takesFocus: boolean };

const isGroup = (g: MapGroup) => g.kind !== "outside" && g.kind !== "hidden";

// workloadsLink leads to the list of a group's workloads; "" where no filter says it.
export function workloadsLink(g: MapGroup): string {
  switch (g.kind) {
    case "namespace":
      return link("/workloads", { namespace: g.id.replace(/^ns\//, "") });
    case "nodes":
      return link("/workloads", { kind: "node" });
    case "network":
      return g.id === "net/" ? "" : link("/workloads", { search: g.id.replace(/^net\//, "") });
    case "label":
      return g.id.includes("=") ? link("/workloads", { search: g.id.replace(/^label\//, "") }) : "";
    case "workload":
      return pathOf("workloads", g.id);
  }
  return "";
}

// canOpen says whether a group can be shown as its workloads.
export function canOpen(g: MapGroup): boolean {
  return isGroup(g) && g.kind !== "workload" && g.workloads > 0;
}

export function GroupPanel({ mark, picture, by, within, ways, takesFocus }: Props & { mark: number }) {
  const m = picture.marks[mark]!;
  const g = m.group;
  const out = picture.lines.filter((l) => l.from === mark);
  const into = picture.lines.filter((l) => l.to === mark);
  const toList = workloadsLink(g);
  return (
    <SidePanel name={g.id} takesFocus={takesFocus} onClose={ways.close} kicker={groupKind(g)} title={<Text max={200}>{nameOfGroup(g)}</Text>}>
      {g.kind === "hidden" ? (
        <p>{m.group.workloads > 0 ? counted(m.group.workloads, "workload") : "Workloads"} that you have no right to list. They count in every verdict, and are one group: nothing else is told of them.</p>
      ) : g.kind === "outside" ? (
        <p>Addresses that no workload has: the internet, and networks that are not imported.</p>
      ) : (
        <ul className="side-facts">
          <li>{sizeOf(g)}</li>
          {isolationOf(g) && <li>{isolationOf(g)}</li>}
        </ul>
      )}
      {isGroup(g) && (
        <div className="actions">
          {canOpen(g) && g.id !== within && (
            <button type="button" onClick={() => ways.open(g.id)}>
              <Icon name="down" />
              Show its workloads
            </button>
          )}
          {toList && (
            <Link className="button" href={toList}>
              <Icon name="workloads" />
              {g.kind === "workload" ? "Workload" : "List"}
            </Link>
          )}
          {(g.kind !== "workload" || by === "workload") && (
            <Link className="button" href={link("/matrix", { by: by === "namespace" ? "" : by, from: g.id, to: g.id })}>
              <Icon name="matrix" />
              Matrix
            </Link>
          )}
        </div>
      )}
      {m.inside && (
        <section>
          <h3>Between its own workloads</h3>
          <ul className="ways">
            <Way edge={m.inside} other="itself" onChoose={() => ways.edge(g.id, g.id)} />
          </ul>
        </section>
      )}
      <Direction title="May reach" none={by === "namespace" ? "No other group by rule." : "None."} lines={out} picture={picture} other="to" ways={ways} />
      <Direction title="May be reached by" none="None." lines={into} picture={picture} other="from" ways={ways} />
    </SidePanel>
  );
}

function Direction({ title, none, lines, picture, other, ways }: { title: string; none: string; lines: readonly Line[]; picture: Picture; other: "from" | "to"; ways: Ways }) {
  const [shown, setShown] = useState(40);
  const sorted = [...lines].sort((a, b) => b.edge.allowed - a.edge.allowed);
  return (
    <section>
      <h3>
        {title} <span className="quiet-text num">{count(lines.length)}</span>
      </h3>
      {lines.length === 0 && <p className="quiet-text">{none}</p>}
      <ul className="ways">
        {sorted.slice(0, shown).map((l) => (
          <Way key={`${l.from} ${l.to}`} edge={l.edge} other={nameOfGroup(picture.marks[l[other]]!.group)} onChoose={() => ways.edge(l.edge.from, l.edge.to)} />
        ))}
      </ul>
      {lines.length > shown && (
        <button type="button" onClick={() => setShown(shown + 200)}>
          Show more of {count(lines.length)}
        </button>
      )}
    </section>
  );
}

function Way({ edge, other, onChoose }: { edge: MapEdge; other: string; onChoose: () => void }) {
  return (
    <li>
      <button type="button" className="plain" onClick={onChoose}>
        <Text max={48}>{other}</Text>
        <span className="quiet-text">
          <Text max={60}>{trafficOf(edge)}</Text>
          {edge.by === "default" && " · by default"}
        </span>
      </button>
    </li>
  );
}

// portsOf are flows of an edge's traffic that can be asked about: of each form the first.
export function portsOf(e: MapEdge): string[] {
  const out = new Set<string>();
  for (const t of list(e.traffic)) {
    const [protocol, first, second] = t.split(/[/-]/);
    if (t === "all traffic") out.add("TCP/443");
    else if (/^(TCP|UDP|SCTP)$/.test(protocol!)) out.add(`${protocol}/${first ?? "443"}`);
    else if (protocol === "ICMP") out.add(/^ICMP\/\d+\/\d/.test(t) ? `ICMP/${first}/${second}` : first ? `ICMP/${first}` : "ICMP");
    else if (protocol === "IGMP") out.add("IGMP");
  }
  return [...out].slice(0, 3);
}

export function EdgePanel({ edge, from, to, back, by, ways, takesFocus }: Omit<Props, "picture" | "within"> & { edge: MapEdge; from: MapGroup; to: MapGroup; back: MapEdge | undefined }) {
  const ports = portsOf(edge);
  // Of what is outside there are no pairs, and of what is hidden at both ends nothing is told.
  const isOutside = from.kind === "outside" || to.kind === "outside";
  const inMatrix = ports.length > 0 && !isOutside && (isGroup(from) || isGroup(to));
  const [a, b] = [from.kind === "workload" ? endOf(from.id) : "", to.kind === "workload" ? endOf(to.id) : ""];
  const name = (g: MapGroup): ReactNode => (
    <button type="button" className="link" onClick={() => ways.node(g.id)}>
      <Text max={60}>{nameOfGroup(g)}</Text>
    </button>
  );
  return (
    <SidePanel
      name={`${edge.from} ${edge.to}`}
      takesFocus={takesFocus}
      onClose={ways.close}
      kicker="Who may reach whom"
      title={
        <>
          <Text max={60}>{nameOfGroup(from)}</Text> <span aria-label="to">→</span> <Text max={60}>{nameOfGroup(to)}</Text>
        </>
      }
    >
      <ul className="side-facts">
        <li>
          {edge.by === "rule" ? (
            <Badge tone="good" icon="check">
              by rule
            </Badge>
          ) : (
            <Badge tone="warn" icon="dash">
              by default
            </Badge>
          )}{" "}
          {edge.by === "rule" ? "Rules let it pass." : "Nothing decides it: neither end is isolated, and no rule speaks of it."}
        </li>
        <li>
          <Pairs edge={edge} isOutside={isOutside} />
        </li>
        {edge.depends > 0 && <li>{counted(edge.depends, "pair")} may have more, by what is not known, such as a DNS name.</li>}
        <li>
          <span className="quiet-text">{edge.allowed + edge.partial > 0 ? "What passes between any of them: " : "What may pass: "}</span>
          <Some of={list(edge.traffic)} most={8} mono />
          {edge.moreTraffic > 0 && <span className="quiet-text"> and {count(edge.moreTraffic)} more</span>}
        </li>
        <li>
          Groups: {name(from)}
          {from.id !== to.id && <> and {name(to)}</>}
        </li>
      </ul>
      <div className="actions">
        {inMatrix && (
          <Link className="button" href={link("/matrix", { by: by === "namespace" ? "" : by, port: ports, from: edge.from, to: edge.to })}>
            <Icon name="matrix" />
            Matrix cell
          </Link>
        )}
        {a && b && (
          <Link className="button" href={link("/explain", { from: a, to: b, port: ports[0] ?? "TCP/443" })}>
            <Icon name="explain" />
            Explain
          </Link>
        )}
        {back && (
          <button type="button" onClick={() => ways.edge(back.from, back.to)}>
            <Icon name="swap" />
            The other way
          </button>
        )}
      </div>
      {inMatrix && <Examples by={by} edge={edge} ports={ports} />}
    </SidePanel>
  );
}

function Pairs({ edge, isOutside }: { edge: MapEdge; isOutside: boolean }) {
  if (edge.allowed + edge.partial === 0) return <>It passes only by what is not known, such as a DNS name.</>;
  if (edge.pairs <= 1) return <>{edge.allowed > 0 ? "All traffic passes." : "Some traffic passes."}</>;
  const of = isOutside ? counted(edge.pairs, "workload") : `${counted(edge.pairs, "pair")} of workloads`;
  if (edge.allowed === 0) return <>Some traffic passes for {count(edge.partial)} of {of}.</>;
  return (
    <>
      All traffic passes for {count(edge.allowed)} of {of}
      {edge.partial > 0 && `, some for ${count(edge.partial)}`}.
    </>
  );
}

// Examples are pairs of workloads that the edge stands for, with the way to Explain.
function Examples({ by, edge, ports }: { by: string; edge: MapEdge; ports: string[] }) {
  const cell = useView<Cell>("cell", { by, from: edge.from, to: edge.to, port: ports }, { keep: false });
  return (
    <section>
      <h3>Examples</h3>
      <Shown of={cell} what="Examples" rows={3}>
        {(data) => (
          <ul className="examples">
            {list(data.asked).flatMap((asked) =>
              list(asked.by)
                .slice(0, 4)
                .map((w, i) => {
                  const [from, to] = [endOf(w.from), endOf(w.to)];
                  return (
                    <li key={`${asked.port} ${i}`}>
                      <span className="pair">
                        <Verdict of={w.verdict} />
                        <span className="mono">
                          <Text>{asked.port}</Text>
                        </span>
                        <span className="quiet-text">{counted(w.pairs, "pair")}</span>
                      </span>
                      <span>
                        <WorkloadRef id={w.from} max={44} /> → <WorkloadRef id={w.to} max={44} />
                      </span>
                      {from && to && <Link href={link("/explain", { from, to, port: asked.port })}>Explain</Link>}
                    </li>
                  );
                }),
            )}
          </ul>
        )}
      </Shown>
    </section>
  );
}
