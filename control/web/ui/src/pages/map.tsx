import { Component, type ReactNode, useEffect, useMemo, useRef, useState } from "react";
import { useView } from "../data.ts";
import { later } from "../later.tsx";
import type { Chosen, Handle } from "../map/canvas.tsx";
import { place, sliced } from "../map/layout.ts";
import { Legend } from "../map/legend.tsx";
import { EdgeList, GroupList } from "../map/lists.tsx";
import { canOpen, EdgePanel, GroupPanel, type Ways } from "../map/panels.tsx";
import { isArrangedAlike, type Picture, pictureOf, pullsOf } from "../map/picture.ts";
import { hasWebGL } from "../map/webgl.ts";
import { useIsNarrow } from "../narrow.ts";
import { byName, byOf, GroupBy } from "../parts/groupby.tsx";
import { Icon } from "../parts/icon.tsx";
import { Page } from "../parts/page.tsx";
import { SidePanel } from "../parts/panel.tsx";
import { Search } from "../parts/search.tsx";
import { Bounds, Empty, Loading, Shown } from "../parts/states.tsx";
import { Text } from "../parts/text.tsx";
import { useQuery } from "../route.ts";
import { count, counted } from "../text.ts";
import { useAnnounced } from "../useannounced.ts";
import { list, type MapGroup, type WorldMap } from "../views.ts";

const Canvas = later(() => import("../map/canvas.tsx"), <Loading what="the map" />);

export default function MapPage() {
  const query = useQuery();
  const [by, within] = [byOf(query.get("by")), query.get("within")];
  const view = useView<WorldMap>("map", { by, within, search: query.get("search"), open: query.get("open") === "true" });
  const [isLost, setLost] = useState(false);
  const isNarrow = useIsNarrow();
  const canDraw = !isLost && hasWebGL();
  const as = query.get("as") || (isNarrow ? "list" : "map");
  const isList = as === "list" || !canDraw;
  useEffect(() => {
    if (!isList) Canvas.load().catch(() => {}); // while the view is on its way; a fault is told when it is shown
  }, [isList]);
  return (
    <Page
      title="Map"
      wide
      kicker="Who may reach whom, by what is enforced"
      actions={
        <fieldset className="segments inline">
          <legend className="sr">Show as</legend>
          {(["map", "list"] as const).map((v) => (
            <label key={v}>
              <input type="radio" name="as" checked={isList === (v === "list")} disabled={v === "map" && !canDraw} onChange={() => query.set({ as: v })} />
              {v === "map" ? "Map" : "List"}
            </label>
          ))}
        </fieldset>
      }
    >
      <Bounds what="workloads" />
      {!canDraw && as !== "list" && <p className="note">{isLost ? "The browser has taken WebGL away" : "This browser has no WebGL"}, by which the map is drawn. Here is the same as lists.</p>}
      <div className="filters" role="search">
        <GroupBy clears={["within", "node", "from", "to"]} />
        <Search label="Search groups" placeholder="Name of a group or workload" />
        <label className="check open-check" title="Also what passes because nothing decides it: no end is isolated, and no rule speaks of it">
          <input type="checkbox" checked={query.get("open") === "true"} onChange={(e) => query.set({ open: e.target.checked ? "true" : "" })} />
          Show what is open by default
        </label>
      </div>
      {within !== "" && (
        <p className="crumbs">
          <button type="button" className="link" onClick={() => query.set({ within: "", node: "", from: "", to: "" }, { add: true })}>
            All groups by {byName(by)}
          </button>{" "}
          › <Text max={80}>{within.replace(/^(ns|net|label)\//, "")}</Text>
        </p>
      )}
      <Shown of={view} what="The map" rows={8}>
        {(data) => <World data={data} by={by} within={within} isList={isList} dim={view.isPlaceholderData} onLost={() => setLost(true)} />}
      </Shown>
    </Page>
  );
}

function World({ data, by, within, isList, dim, onLost }: { data: WorldMap; by: string; within: string; isList: boolean; dim: boolean; onLost: () => void }) {
  const query = useQuery();
  // What was open belongs to the answer, which may be older than the question.
  const opened = useRef(within);
  if (!dim) opened.current = within;
  const picture = useMemo(() => pictureOf({ ...data }, opened.current), [data.groups, data.edges]);
  const [byKey, setByKey] = useState(false);
  const handle = useRef<Handle>(null);
  const [node, from, to] = [query.get("node"), query.get("from"), query.get("to")];
  const chosen = useMemo((): Chosen => (node !== "" ? { group: node } : from !== "" && to !== "" ? { from, to } : undefined), [node, from, to]);
  const ways = useMemo(
    (): Ways => ({
      node: (id) => (setByKey(true), query.set({ node: id, from: "", to: "" })),
      edge: (a, b) => (setByKey(true), query.set({ node: "", from: a, to: b })),
      open: (id) => query.set({ within: id, node: "", from: "", to: "" }, { add: true }),
      close: () => {
        query.set({ node: "", from: "", to: "" });
        handle.current?.focus();
      },
    }),
    [query],
  );
  const groups = list(data.groups).filter((g) => g.kind !== "outside" && g.kind !== "hidden").length;
  const { omitted } = data;
  const said = `${counted(groups, "group")}, ${counted(list(data.edges).length, "edge")}`;
  useAnnounced(dim ? "" : said);
  const panel = (
    <Panel picture={picture} by={by} within={opened.current} node={node} from={from} to={to} ways={ways} takesFocus={byKey} />
  );
  const notes = (
    <>
      {(omitted.groups > 0 || omitted.edges > 0) && (
        <p className="note warn">
          <Icon name="warn" />
          <span>
            Not all is shown: {[omitted.groups > 0 && counted(omitted.groups, "group"), omitted.edges > 0 && counted(omitted.edges, "edge")].filter(Boolean).join(" and ")} more. Search, or
            group by something else.
          </span>
        </p>
      )}
      {picture.stray > 0 && (
        <p className="note warn">
          <Icon name="warn" />
          <span>{counted(picture.stray, "edge")} of groups that are not told cannot be drawn.</span>
        </p>
      )}
    </>
  );
  if (groups === 0) {
    return (
      <Empty title={query.get("search") !== "" ? "No group is like that" : "There is no workload"}>
        <p>{query.get("search") !== "" ? "Search for a part of a name." : "Once there are Pods, VMs or Nodes that you may list, they are here."}</p>
      </Empty>
    );
  }
  if (isList) {
    const isEdges = query.get("list") === "edges";
    return (
      <>
        {notes}
        <div className={panelOpen(node, from, to) ? "map-lists with-side" : "map-lists"}>
          <div>
            <fieldset className="segments inline">
              <legend className="sr">List</legend>
              <label>
                <input type="radio" name="list" checked={!isEdges} onChange={() => query.set({ list: "" })} />
                Groups {count(picture.marks.length)}
              </label>
              <label>
                <input type="radio" name="list" checked={isEdges} onChange={() => query.set({ list: "edges" })} />
                Who reaches whom {count(list(data.edges).length)}
              </label>
            </fieldset>
            {isEdges ? <EdgeList picture={picture} ways={ways} dim={dim} /> : <GroupList picture={picture} within={opened.current} ways={ways} dim={dim} />}
          </div>
          {panel}
        </div>
      </>
    );
  }
  return (
    <>
      {notes}
      <div className={panelOpen(node, from, to) ? "map-stage with-side" : "map-stage"}>
        <div className={dim ? "map-frame card dim" : "map-frame card"}>
          <Drawn
            picture={picture}
            chosen={chosen}
            handle={handle}
            onLost={onLost}
            onChoose={(c, key) => {
              setByKey(key);
              query.set({ node: "", from: "", to: "", ...(c && "group" in c ? { node: c.group } : c) });
            }}
            onOpen={(g) => canOpen(g) && ways.open(g.id)}
          />
          <p className="map-count quiet-text num">{said}</p>
          <div className="map-tools">
            <button type="button" title="Zoom in (+)" onClick={() => handle.current?.zoom(1.6)}>
              <span aria-hidden="true">+</span>
              <span className="sr">Zoom in</span>
            </button>
            <button type="button" title="Zoom out (-)" onClick={() => handle.current?.zoom(1 / 1.6)}>
              <span aria-hidden="true">−</span>
              <span className="sr">Zoom out</span>
            </button>
            <button type="button" title="Show all (0)" onClick={() => handle.current?.fit()}>
              Fit
            </button>
          </div>
          <Legend />
        </div>
        {panel}
      </div>
    </>
  );
}

const panelOpen = (node: string, from: string, to: string) => node !== "" || (from !== "" && to !== "");

function Panel({ picture, by, within, node, from, to, ways, takesFocus }: { picture: Picture; by: string; within: string; node: string; from: string; to: string; ways: Ways; takesFocus: boolean }) {
  if (!panelOpen(node, from, to)) return null;
  const gone = (what: string) => (
    <SidePanel name="gone" takesFocus={takesFocus} onClose={ways.close} kicker={what} title="Not here">
      <p>{what} is not on this map now: it is gone, left out, filtered, or not visible to you.</p>
    </SidePanel>
  );
  if (node !== "") {
    const mark = picture.indexOf.get(node);
    return mark === undefined ? gone("This group") : <GroupPanel key={node} mark={mark} picture={picture} by={by} within={within} ways={ways} takesFocus={takesFocus} />;
  }
  const [a, b] = [picture.indexOf.get(from), picture.indexOf.get(to)];
  if (a === undefined || b === undefined) return gone("This edge");
  const find = (x: number, y: number) => (x === y ? picture.marks[x]!.inside : picture.lines.find((l) => l.from === x && l.to === y)?.edge);
  const edge = find(a, b);
  if (!edge) return gone("This edge");
  return <EdgePanel key={`${from} ${to}`} edge={edge} back={a === b ? undefined : find(b, a)} from={picture.marks[a]!.group} to={picture.marks[b]!.group} by={by} ways={ways} takesFocus={takesFocus} />;
}

type DrawnProps = { picture: Picture; chosen: Chosen; handle: React.RefObject<Handle | null>; onChoose: (c: Chosen, byKey: boolean) => void; onOpen: (g: MapGroup) => void; onLost: () => void };

// Drawn arranges a picture, in parts so that the page stays quick, and draws it when that is done.
function Drawn(props: DrawnProps) {
  const { picture, onLost } = props;
  const [done, setDone] = useState<{ picture: Picture; positions: Float64Array }>();
  const last = useRef(done);
  last.current = done;
  useEffect(() => {
    const before = last.current;
    if (before && isArrangedAlike(before.picture, picture)) {
      setDone({ picture, positions: before.positions });
      return;
    }
    let isOver = false;
    const pause = sliced();
    const arrange = place(picture.marks.map((m) => m.spot), pullsOf(picture), () => (isOver ? Promise.reject(new Error("over")) : pause()));
    arrange.then((positions) => !isOver && setDone({ picture, positions })).catch(() => {});
    return () => {
      isOver = true;
    };
  }, [picture]);
  if (!done) return <Loading what="the map" />;
  return (
    <CanvasBoundary onFault={onLost}>
      <Canvas picture={done.picture} positions={done.positions} chosen={props.chosen} onChoose={props.onChoose} onOpen={props.onOpen} onLost={onLost} handle={props.handle} />
    </CanvasBoundary>
  );
}

// CanvasBoundary shows lists where the picture cannot be drawn after all.
class CanvasBoundary extends Component<{ children: ReactNode; onFault: () => void }, { isFaulty: boolean }> {
  override state = { isFaulty: false };

  static getDerivedStateFromError() {
    return { isFaulty: true };
  }

  override componentDidCatch() {
    this.props.onFault();
  }

  override render() {
    return this.state.isFaulty ? null : this.props.children;
  }
}
