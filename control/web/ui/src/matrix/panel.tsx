// What the matrix tells of a cell: what decides, and for which pairs.
import { Link } from "wouter";
import { useView } from "../data.ts";
import { endOf } from "../ids.ts";
import { By, needsOf } from "../pages/explain.tsx";
import { Badge, Verdict } from "../parts/badges.tsx";
import { SidePanel } from "../parts/panel.tsx";
import { WorkloadRef } from "../parts/refs.tsx";
import { Shown } from "../parts/states.tsx";
import { Text } from "../parts/text.tsx";
import { link } from "../route.ts";
import { count, counted } from "../text.ts";
import { type Cell, type CellWay, list, type MatrixCell } from "../views.ts";
import { wordsOf } from "./cells.ts";

type Props = { by: string; ports: readonly string[]; from: { id: string; name: string }; to: { id: string; name: string }; cell: MatrixCell | undefined; onClose: () => void; takesFocus: boolean };

export function CellPanel({ by, ports, from, to, cell, onClose, takesFocus }: Props) {
  const view = useView<Cell>("cell", { by, from: from.id, to: to.id, port: ports }, { keep: false });
  return (
    <SidePanel
      name={`${from.id} ${to.id}`}
      takesFocus={takesFocus}
      onClose={onClose}
      kicker="What decides"
      title={
        <>
          <Text max={60}>{from.name}</Text> <span aria-label="to">→</span> <Text max={60}>{to.name}</Text>
        </>
      }
    >
      {cell && <p className="first-up">{wordsOf(cell)}</p>}
      <Shown of={view} what="What decides" rows={4}>
        {(data) =>
          list(data.asked).map((asked) => (
            <section key={asked.port} aria-label={asked.port}>
              <h3 className="cell-port">
                <span className="mono">
                  <Text>{asked.port}</Text>
                </span>
                {asked.allowed > 0 && (
                  <Badge tone="good" icon="check">
                    {count(asked.allowed)} allowed
                  </Badge>
                )}
                {asked.denied > 0 && (
                  <Badge tone="bad" icon="cross">
                    {count(asked.denied)} denied
                  </Badge>
                )}
                {asked.depends > 0 && (
                  <Badge tone="warn" icon="help">
                    {count(asked.depends)} depend
                  </Badge>
                )}
              </h3>
              {list(asked.by).length === 0 && <p className="quiet-text">There are no pairs.</p>}
              <ul className="examples">
                {list(asked.by).map((w, i) => (
                  <Way key={i} way={w} port={asked.port} />
                ))}
              </ul>
              {asked.moreBy !== undefined && asked.moreBy > 0 && <p className="quiet-text">{counted(asked.moreBy, "more way")} in which it is decided.</p>}
            </section>
          ))
        }
      </Shown>
    </SidePanel>
  );
}

function Way({ way: w, port }: { way: CellWay; port: string }) {
  const [from, to] = [endOf(w.from), endOf(w.to)];
  return (
    <li>
      <span className="pair">
        <Verdict of={w.verdict} />
        <span className="num">{counted(w.pairs, "pair")}</span>
        {list(w.needs).length > 0 && (
          <Badge tone="warn" icon="help" title="The strictest answer: what is not known may let it pass">
            depends on {needsOf(list(w.needs))}
          </Badge>
        )}
      </span>
      <span>
        <span className="quiet-text">Egress</span> <By of={w.egress} />
      </span>
      <span>
        <span className="quiet-text">Ingress</span> <By of={w.ingress} />
      </span>
      <span>
        <span className="quiet-text">For example</span> <WorkloadRef id={w.from} max={44} /> → <WorkloadRef id={w.to} max={44} />
      </span>
      {from && to && <Link href={link("/explain", { from, to, port })}>Explain this pair</Link>}
    </li>
  );
}
