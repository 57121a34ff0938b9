import { useMemo, useState } from "react";
import { useView } from "../data.ts";
import { groupName } from "../ids.ts";
import { Lookup, type Point } from "../matrix/cells.ts";
import { Grid } from "../matrix/grid.tsx";
import { CellPanel } from "../matrix/panel.tsx";
import { Ports } from "../matrix/ports.tsx";
import { RowList } from "../matrix/rows.tsx";
import { useIsNarrow } from "../narrow.ts";
import { byOf, GroupBy } from "../parts/groupby.tsx";
import { Icon } from "../parts/icon.tsx";
import { Page } from "../parts/page.tsx";
import { Search } from "../parts/search.tsx";
import { Bounds, Empty, Shown } from "../parts/states.tsx";
import { useQuery } from "../route.ts";
import { count, counted } from "../text.ts";
import { useAnnounced } from "../useannounced.ts";
import { list, type Matrix } from "../views.ts";

export default function MatrixPage() {
  const query = useQuery();
  const by = byOf(query.get("by"));
  const asked = query.all("port").join(" ");
  const ports = useMemo(() => (asked === "" ? ["TCP/443"] : asked.split(" ")), [asked]);
  const view = useView<Matrix>("matrix", { by, port: ports, search: query.get("search") }, { share: false });
  return (
    <Page title="Matrix" wide kicker="Which groups may use which ports of which others">
      <Bounds what="workloads" />
      <div className="filters" role="search">
        <GroupBy clears={["from", "to", "row"]} />
        <Ports ports={ports} onChange={(p) => query.set({ port: p }, { add: true })} />
        <Search label="Search groups" placeholder="Name of a group or workload" />
      </div>
      <Shown of={view} what="The matrix" rows={10}>
        {(data) => <Cells data={data} by={by} ports={ports} dim={view.isPlaceholderData} />}
      </Shown>
    </Page>
  );
}

function Cells({ data: told, by, ports, dim }: { data: Matrix; by: string; ports: readonly string[]; dim: boolean }) {
  const data = useMemo(() => ({ ...told, groups: list(told.groups).map((g) => ({ ...g, name: groupName(g) })) }), [told]);
  const query = useQuery();
  const isNarrow = useIsNarrow();
  const [byKey, setByKey] = useState(false);
  const groups = data.groups;
  const [from, to] = [query.get("from"), query.get("to")];
  const look = query.get("cells") === "counts" ? "counts" : query.get("cells") === "symbols" ? "symbols" : groups.length <= 14 ? "counts" : "symbols";
  const chosen = useMemo((): Point | undefined => {
    const [row, column] = [groups.findIndex((g) => g.id === from), groups.findIndex((g) => g.id === to)];
    return row < 0 || column < 0 ? undefined : { row, column };
  }, [groups, from, to]);
  const lookup = useMemo(() => new Lookup(data), [data]);
  useAnnounced(dim ? "" : counted(groups.length, "group"));
  const choose = (a: string, b: string, key: boolean) => {
    setByKey(key);
    query.set({ from: a, to: b });
  };
  if (groups.length === 0) {
    return (
      <Empty title={query.get("search") !== "" ? "No group is like that" : "There is no workload"}>
        <p>{query.get("search") !== "" ? "Search for a part of a name." : "Once there are workloads that you may list, they are here."}</p>
      </Empty>
    );
  }
  const name = (id: string) => groups.find((g) => g.id === id)?.name ?? id.replace(/^(ns|net|label)\//, "");
  const isOpen = from !== "" && to !== "";
  return (
    <>
      {data.omitted.groups > 0 && (
        <p className="note warn">
          <Icon name="warn" />
          <span>Not all is shown: {counted(data.omitted.groups, "group")} more. Search, or group by something else.</span>
        </p>
      )}
      <div className={isOpen ? "matrix-stage with-side" : "matrix-stage"}>
        <div className="matrix-main">
          <div className="matrix-bar">
            <MatrixLegend />
            {!isNarrow && (
              <fieldset className="segments inline">
                <legend className="sr">Cells show</legend>
                {(["symbols", "counts"] as const).map((v) => (
                  <label key={v}>
                    <input type="radio" name="cells" checked={look === v} onChange={() => query.set({ cells: v })} />
                    {v === "symbols" ? "Symbols" : "Counts"}
                  </label>
                ))}
              </fieldset>
            )}
          </div>
          {isNarrow ? (
            <RowList matrix={data} dim={dim} onChoose={(a, b) => choose(a, b, true)} />
          ) : (
            <Grid key={look} matrix={data} look={look} dim={dim} chosen={chosen} onChoose={(at, key) => choose(groups[at.row]!.id, groups[at.column]!.id, key)} />
          )}
          <p className="quiet-text num">
            {counted(groups.length, "group")}, {count(groups.reduce((sum, g) => sum + g.workloads, 0))} workloads. A workload is not a pair with itself; those that have ended or have no address are left out.
          </p>
        </div>
        {isOpen && (
          <CellPanel
            key={`${from} ${to}`}
            by={by}
            ports={ports}
            from={{ id: from, name: name(from) }}
            to={{ id: to, name: name(to) }}
            cell={chosen && lookup.cell(chosen.row, chosen.column)}
            takesFocus={byKey}
            onClose={() => {
              query.set({ from: "", to: "" });
              document.querySelector<HTMLElement>('.matrix [role="gridcell"][tabindex="0"]')?.focus();
            }}
          />
        )}
      </div>
    </>
  );
}

const legend: readonly [look: string, symbol: string, words: string][] = [
  ["allowed", ".", "allowed for all pairs"],
  ["denied", "X", "denied for all"],
  ["part", "/", "for some, or in part"],
  ["none", "-", "no pairs"],
  ["denied depends", "X?", "may have more, by what is not known"],
];

function MatrixLegend() {
  return (
    <ul className="matrix-legend" aria-label="Legend">
      {legend.map(([look, symbol, words]) => (
        <li key={words}>
          <span className={`matrix-cell still ${look}`}>{symbol}</span>
          {words}
        </li>
      ))}
    </ul>
  );
}
