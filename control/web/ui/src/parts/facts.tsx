import { Children, type ReactNode, useState } from "react";
import { count, plain } from "../text.ts";
import { Text } from "./text.tsx";

// Facts are names with values.
export function Facts({ children }: { children: ReactNode }) {
  return <dl className="facts card">{children}</dl>;
}

export function Fact({ name, children }: { name: string; children: ReactNode }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

// Section is a part of a page with a heading.
export function Section({ title, note, children }: { title: string; note?: ReactNode; children: ReactNode }) {
  return (
    <section className="section">
      <header>
        <h2>{title}</h2>
        {note && <p className="quiet-text">{note}</p>}
      </header>
      {children}
    </section>
  );
}

// Sheet is a small table, which scrolls by itself where it is wider than the page.
export function Sheet({ label, head, numbers = [], children }: { label: string; head: readonly string[]; numbers?: readonly string[]; children: ReactNode }) {
  const rows = Children.toArray(children);
  const [shown, setShown] = useState(200);
  return (
    <>
      <div className="scroll card" role="region" aria-label={label} tabIndex={0}>
        <table className="sheet">
          <thead>
            <tr>
              {head.map((h) => (
                <th key={h} scope="col" className={numbers.includes(h) ? "num" : ""}>
                  {h}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>{rows.slice(0, shown)}</tbody>
        </table>
      </div>
      {rows.length > shown && (
        <button type="button" onClick={() => setShown(shown + 1000)}>
          Show more of {count(rows.length)}
        </button>
      )}
    </>
  );
}

// Some shows the first of many texts.
export function Some({ of, most = 3, mono = false, none = "–" }: { of: readonly string[]; most?: number; mono?: boolean; none?: string }) {
  if (of.length === 0) return <span className="quiet-text">{none}</span>;
  const shown = of.slice(0, most).map((t, i) => (
    <span key={i}>
      {i > 0 && ", "}
      <Text max={80}>{t}</Text>
    </span>
  ));
  return (
    <span className={mono ? "mono" : ""}>
      {shown}
      {of.length > most && (
        <span className="quiet-text" title={of.slice(most, most + 40).map(plain).join("\n")}>
          {" "}
          and {count(of.length - most)} more
        </span>
      )}
    </span>
  );
}
