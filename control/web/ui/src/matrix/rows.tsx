// The matrix where there is little room: one group, and where it leads, or from where it is reached.
import { useId, useMemo } from "react";
import { useQuery } from "../route.ts";
import { Text } from "../parts/text.tsx";
import { plain, shortened } from "../text.ts";
import { list, type Matrix } from "../views.ts";
import { Lookup, stateOf, symbolOf, wordsOf } from "./cells.ts";

export function RowList({ matrix, onChoose, dim }: { matrix: Matrix; onChoose: (from: string, to: string) => void; dim: boolean }) {
  const query = useQuery();
  const id = useId();
  const groups = list(matrix.groups);
  const lookup = useMemo(() => new Lookup(matrix), [matrix]);
  const asked = groups.findIndex((g) => g.id === query.get("row"));
  const row = asked < 0 ? 0 : asked;
  const isInto = query.get("way") === "into";
  return (
    <div className={dim ? "row-list dim" : "row-list"}>
      <div className="filters">
        <div className="field">
          <label htmlFor={id}>Group</label>
          <select id={id} value={groups[row]!.id} onChange={(e) => query.set({ row: e.target.value })}>
            {groups.map((g) => (
              <option key={g.id} value={g.id}>
                {plain(shortened(g.name, 50))}
              </option>
            ))}
          </select>
        </div>
        <fieldset className="segments inline">
          <legend className="sr">Direction</legend>
          {([["", "may reach"], ["into", "is reached by"]] as const).map(([value, words]) => (
            <label key={value}>
              <input type="radio" name="way" checked={isInto === (value === "into")} onChange={() => query.set({ way: value })} />
              {words}
            </label>
          ))}
        </fieldset>
      </div>
      <ul className="row-cells card">
        {groups.map((g, i) => {
          const [from, to] = isInto ? [i, row] : [row, i];
          const cell = lookup.cell(from, to);
          return (
            <li key={g.id}>
              <button type="button" className="plain" onClick={() => onChoose(groups[from]!.id, groups[to]!.id)}>
                <span className={`matrix-cell still ${stateOf(cell)}${cell && cell.depends > 0 ? " depends" : ""}`} aria-hidden="true">
                  {symbolOf(cell)}
                </span>
                <span>
                  <Text max={60}>{g.name}</Text>
                  <span className="quiet-text">{wordsOf(cell)}</span>
                </span>
              </button>
            </li>
          );
        })}
      </ul>
    </div>
  );
}
