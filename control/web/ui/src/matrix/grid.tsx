import { memo, type KeyboardEvent, useEffect, useLayoutEffect, useMemo, useRef, useState } from "react";
import { Text } from "../parts/text.tsx";
import { plain } from "../text.ts";
import { list, type Matrix } from "../views.ts";
import { Lookup, type Point, range, stateOf, step, symbolOf, textOf, wordsOf } from "./cells.ts";

const headWidth = 200;
const headHeight = 132;
const rowHeight = 28;
const widths = { symbols: 28, counts: 88 };

type Props = {
  matrix: Matrix;
  look: "symbols" | "counts";
  chosen: Point | undefined;
  onChoose: (at: Point, byKey: boolean) => void;
  dim: boolean;
};

// Grid shows a matrix of any size: what is not in sight is not there. It is a grid of the ARIA Authoring Practices, in which one cell
// can be reached by Tab, and the others from there.
export function Grid({ matrix, look, chosen, onChoose, dim }: Props) {
  const groups = list(matrix.groups);
  const lookup = useMemo(() => new Lookup(matrix), [matrix]);
  const names = useMemo(() => groups.map((g) => plain(g.name)), [groups]);
  const box = useRef<HTMLDivElement>(null);
  const width = widths[look];
  const [at, setAt] = useState<Point>(chosen ?? { row: 0, column: 0 });
  const [view, setView] = useState({ rows: [0, 30] as [number, number], columns: [0, 40] as [number, number] });
  const wantsFocus = useRef(false);
  const n = groups.length;
  const active = { row: Math.min(at.row, n - 1), column: Math.min(at.column, n - 1) };

  useLayoutEffect(() => {
    const element = box.current!;
    const look = () => {
      const rows = range(element.scrollTop, element.clientHeight - headHeight, rowHeight, n);
      const columns = range(element.scrollLeft, element.clientWidth - headWidth, width, n);
      setView((v) => (v.rows[0] === rows[0] && v.rows[1] === rows[1] && v.columns[0] === columns[0] && v.columns[1] === columns[1] ? v : { rows, columns }));
    };
    look();
    element.addEventListener("scroll", look, { passive: true });
    const watch = new ResizeObserver(look);
    watch.observe(element);
    return () => {
      element.removeEventListener("scroll", look);
      watch.disconnect();
    };
  }, [n, width]);

  // What the address says is chosen is where one is.
  const chosenAt = chosen ? `${chosen.row} ${chosen.column}` : "";
  useEffect(() => {
    if (!chosen) return;
    setAt(chosen);
    reveal(box.current!, chosen, width);
  }, [chosenAt]);

  useLayoutEffect(() => {
    if (!wantsFocus.current) return;
    wantsFocus.current = false;
    box.current?.querySelector<HTMLElement>(`[data-at="${active.row} ${active.column}"]`)?.focus({ preventScroll: true });
  });

  function press(e: KeyboardEvent) {
    if (e.altKey || e.metaKey) return;
    if (e.key === "Enter" || e.key === " ") {
      e.preventDefault();
      onChoose(active, true);
      return;
    }
    const page = Math.max(1, Math.floor((box.current!.clientHeight - headHeight) / rowHeight) - 1);
    const to = step(e.key, e.ctrlKey, active, n, page);
    if (!to) return;
    e.preventDefault();
    wantsFocus.current = true;
    setAt(to);
    reveal(box.current!, to, width);
  }

  // What was in sight may not be there any more.
  const clip = ([from, to]: [number, number]): [number, number] => [Math.min(from, n), Math.min(to, n)];
  const rows = between(clip(view.rows), active.row);
  const [left, right] = clip(view.columns);
  const total = { width: headWidth + n * width, height: headHeight + n * rowHeight };
  return (
    <div ref={box} className={dim ? "matrix card dim" : "matrix card"}>
      <div role="grid" aria-label="From the groups of the rows to those of the columns" aria-rowcount={n + 1} aria-colcount={n + 1} aria-readonly style={total} onKeyDown={press}>
        <div role="row" aria-rowindex={1} className="matrix-head" style={{ width: total.width, height: headHeight }}>
          <div role="columnheader" aria-colindex={1} className="matrix-corner" style={{ width: headWidth, height: headHeight }}>
            <span>From ↓</span>
            <span>To →</span>
          </div>
          {between([left, right], active.column).map((c) => (
            <div key={c} role="columnheader" aria-colindex={c + 2} className={c === active.column ? "matrix-column here" : "matrix-column"} title={names[c]} style={{ left: headWidth + c * width, width }}>
              <span>
                <Text max={22}>{groups[c]!.name}</Text>
              </span>
            </div>
          ))}
        </div>
        {rows.map((r) => (
          <Row
            key={r}
            row={r}
            name={groups[r]!.name}
            names={names}
            lookup={lookup}
            look={look}
            from={left}
            to={right}
            active={r === active.row ? active.column : -1}
            chosen={chosen?.row === r ? chosen.column : -1}
            onChoose={onChoose}
            setAt={setAt}
          />
        ))}
      </div>
    </div>
  );
}

// between are the whole numbers of a range, and one more.
function between([from, to]: readonly [number, number], more: number): number[] {
  const out = Array.from({ length: Math.max(0, to - from) }, (_, i) => from + i);
  if (more >= 0 && more < from) out.unshift(more);
  if (more >= to) out.push(more);
  return out;
}

// reveal scrolls to a cell that is not in sight.
function reveal(box: HTMLElement, { row, column }: Point, width: number) {
  const [top, left] = [row * rowHeight, column * width];
  const [high, wide] = [box.clientHeight - headHeight, box.clientWidth - headWidth];
  if (top < box.scrollTop) box.scrollTop = top;
  else if (top + rowHeight > box.scrollTop + high) box.scrollTop = top + rowHeight - high;
  if (left < box.scrollLeft) box.scrollLeft = left;
  else if (left + width > box.scrollLeft + wide) box.scrollLeft = left + width - wide;
}

type RowProps = {
  row: number;
  name: string;
  names: readonly string[];
  lookup: Lookup;
  look: Props["look"];
  from: number;
  to: number;
  active: number;
  chosen: number;
  onChoose: Props["onChoose"];
  setAt: (at: Point) => void;
};

const Row = memo(function Row({ row, name, names, lookup, look, from, to, active, chosen, onChoose, setAt }: RowProps) {
  const width = widths[look];
  return (
    <div role="row" aria-rowindex={row + 2} className="matrix-row" style={{ top: headHeight + row * rowHeight, width: headWidth + lookup.size * width, height: rowHeight }}>
      <div role="rowheader" aria-colindex={1} className={active >= 0 ? "matrix-name here" : "matrix-name"} title={names[row]} style={{ width: headWidth }}>
        <Text max={30}>{name}</Text>
      </div>
      {between([from, to], active).map((column) => {
        const cell = lookup.cell(row, column);
        const shown = look === "symbols" ? symbolOf(cell) : textOf(cell);
        return (
          <div
            key={column}
            role="gridcell"
            aria-colindex={column + 2}
            aria-selected={column === chosen}
            tabIndex={column === active ? 0 : -1}
            data-at={`${row} ${column}`}
            className={`matrix-cell ${stateOf(cell)}${cell && cell.depends > 0 ? " depends" : ""}`}
            style={{ left: headWidth + column * width, width }}
            onClick={() => {
              setAt({ row, column });
              onChoose({ row, column }, false);
            }}
          >
            <span aria-hidden="true">{shown}</span>
            <span className="sr">{`${names[row]} to ${names[column]}: ${wordsOf(cell)}`}</span>
          </div>
        );
      })}
    </div>
  );
});
