import { useWindowVirtualizer } from "@tanstack/react-virtual";
import { type ReactNode, useEffect, useLayoutEffect, useRef, useState } from "react";

export type Column<T> = {
  id: string;
  head: string;
  width: string; // as CSS has it; one at least should be "auto"
  isNumber?: boolean;
  // minor columns are left out where there is little room.
  minor?: boolean;
  cell: (row: T) => ReactNode;
};

export type Row<T> = { key: string; item: T } | { key: string; heading: ReactNode };

type Props<T> = {
  label: string;
  columns: readonly Column<T>[];
  rows: readonly Row<T>[];
  total: number; // of rows, with those that have not come yet
  // more is called when the end of rows is near, while there are more.
  more?: (() => void) | undefined;
  dim?: boolean; // what is shown is about to change
};

// Table shows any number of rows: those that are not to be seen are not there, but counted. With little room each row is a card.
export function Table<T>({ label, columns, rows, total, more, dim = false }: Props<T>) {
  const body = useRef<HTMLTableSectionElement>(null);
  const [margin, setMargin] = useState(0);
  useLayoutEffect(() => {
    const measure = () => {
      const top = body.current ? body.current.getBoundingClientRect().top + window.scrollY : 0;
      setMargin((m) => (Math.abs(m - top) < 1 ? m : top));
    };
    measure();
    const watch = new ResizeObserver(measure);
    watch.observe(document.body);
    return () => watch.disconnect();
  }, []);
  const virtual = useWindowVirtualizer({
    count: rows.length,
    estimateSize: () => 35,
    overscan: 12,
    scrollMargin: margin,
    getItemKey: (i) => rows[i]?.key ?? i,
    useFlushSync: false,
  });
  const items = virtual.getVirtualItems();
  const last = items.at(-1);
  const isNearEnd = last !== undefined && last.index >= rows.length - 40;
  useEffect(() => {
    if (isNearEnd) more?.();
  }, [isNearEnd, more]);
  const before = (items[0]?.start ?? margin) - margin;
  const after = virtual.getTotalSize() - ((last?.end ?? margin) - margin);
  return (
    <table className={dim ? "grid dim" : "grid"} role="table" aria-label={label} aria-rowcount={total + 1} aria-busy={dim}>
      <colgroup>
        {columns.map((c) => (
          <col key={c.id} className={c.minor ? "minor" : ""} style={{ width: c.width }} />
        ))}
      </colgroup>
      <thead role="rowgroup">
        <tr role="row" aria-rowindex={1}>
          {columns.map((c) => (
            <th key={c.id} role="columnheader" scope="col" className={`${c.isNumber ? "num" : ""} ${c.minor ? "minor" : ""}`}>
              {c.head}
            </th>
          ))}
        </tr>
      </thead>
      <tbody ref={body} role="rowgroup">
        {before > 0 && <tr className="space" aria-hidden="true" style={{ height: before }} />}
        {items.map((v) => {
          const row = rows[v.index];
          if (!row) return null;
          return "heading" in row ? (
            <tr key={row.key} ref={virtual.measureElement} data-index={v.index} role="row" aria-rowindex={v.index + 2} className="heading">
              <th role="rowheader" scope="colgroup" colSpan={columns.length}>
                {row.heading}
              </th>
            </tr>
          ) : (
            <tr key={row.key} ref={virtual.measureElement} data-index={v.index} role="row" aria-rowindex={v.index + 2}>
              {columns.map((c) => (
                <td key={c.id} role="cell" data-head={c.head} data-column={c.id} className={`${c.isNumber ? "num" : ""} ${c.minor ? "minor" : ""}`}>
                  {c.cell(row.item)}
                </td>
              ))}
            </tr>
          );
        })}
        {after > 0 && <tr className="space" aria-hidden="true" style={{ height: after }} />}
      </tbody>
    </table>
  );
}
