// The map as a picture. It is loaded only where there is WebGL.
import { MultiDirectedGraph } from "graphology";
import { type KeyboardEvent, useEffect, useImperativeHandle, useRef } from "react";
import Sigma from "sigma";
import { announce } from "../announce.ts";
import { plain, shortened } from "../text.ts";
import { colour, useIsDark } from "../theme.ts";
import type { MapGroup } from "../views.ts";
import { sliced } from "./layout.ts";
import { pickLine, pickMark } from "./pick.ts";
import { type LineData, lineProgram, type Look, type MarkData, markProgram, shapes } from "./programs.ts";
import { type Mark, type Picture, spoken } from "./picture.ts";

// Chosen is a group, or an edge.
export type Chosen = { group: string } | { from: string; to: string } | undefined;
export type Handle = { zoom(by: number): void; fit(): void; focus(): void };

type Props = {
  picture: Picture;
  positions: Float64Array;
  chosen: Chosen;
  onChoose: (chosen: Chosen, byKey: boolean) => void;
  onOpen: (group: MapGroup) => void;
  onLost: () => void; // WebGL is gone
  handle: React.Ref<Handle>;
};

// Item is a mark or a line of the picture that is shown, by its index.
type Item = { mark: number } | { line: number } | undefined;

type MarkAttributes = MarkData & { x: number; y: number; size: number; color: string; label: string; forceLabel?: boolean };
type LineAttributes = LineData & { color: string };
type Drawing = Sigma<MarkAttributes, LineAttributes>;

type Colours = { tones: Record<Mark["tone"], string>; rule: string; open: string; text: string; quiet: string; ground: string; surface: string; line: string; accent: string; font: string };

function colours(): Colours {
  const accent = colour("--accent");
  return {
    tones: { group: accent, vm: colour("--stage"), node: colour("--quiet"), apart: colour("--quiet") },
    rule: colour("--quiet"), open: colour("--warn"), text: colour("--text"), quiet: colour("--quiet"), ground: colour("--ground"),
    surface: colour("--raised"), line: colour("--line"), accent, font: getComputedStyle(document.body).fontFamily,
  };
}

// opaque is a colour as sigma reads it, which knows only some ways to write one.
function opaque(c: string): string {
  return /^rgba?\(/.test(c) ? c : "rgb(128, 128, 128)";
}

// Stage is a drawing and what is in focus in it.
class Stage {
  readonly look: Look & { strength: number } = { faded: 1, strength: 1, inks: { ground: "", ring: "", accent: "" } };
  readonly sigma: Drawing;
  private inks: Colours = colours();
  private picture: Picture = { marks: [], lines: [], indexOf: new Map() };
  private near: { marks: Set<number>; lines: Set<number> }[] = []; // of each mark
  private lit = { marks: new Set<number>(), lines: new Set<number>() };
  private chosen: Item;
  private pointed: Item;
  private taken: [left: number, top: number, right: number, bottom: number][] = []; // by labels of this frame
  private readonly widths = new Map<string, number>(); // of labels
  private captions: { text: string; x: number; y: number; members: number }[] = [];
  private positions: Float64Array = new Float64Array();
  private pace = { last: 0, slow: 0 };
  private readonly quick = matchMedia("(prefers-reduced-motion: reduce)");

  private drawing = 0; // how many pictures have been asked for
  private readonly onDrawn: () => void;

  constructor(box: HTMLElement, onDrawn: () => void) {
    this.onDrawn = onDrawn;
    const mark = markProgram(this.look);
    this.sigma = new Sigma(new MultiDirectedGraph<MarkAttributes, LineAttributes>(), box, {
      allowInvalidContainer: true,
      defaultNodeType: "mark", defaultEdgeType: "line",
      nodeProgramClasses: { mark: mark as never }, nodeHoverProgramClasses: { mark: mark as never }, edgeProgramClasses: { line: lineProgram(this.look) as never },
      enableEdgeEvents: true,
      itemSizesReference: "positions", zoomToSizeRatioFunction: (x) => x,
      labelRenderedSizeThreshold: 6, labelDensity: 1.2, labelGridCellSize: 110,
      stagePadding: 36, minCameraRatio: 0.005, maxCameraRatio: 3, zoomingRatio: 1.5,
      zoomDuration: this.quick.matches ? 0 : 150, inertiaDuration: this.quick.matches ? 0 : 200, doubleClickZoomingDuration: 0, doubleClickZoomingRatio: 1,
      defaultDrawNodeLabel: (to, d) => this.label(to, d as never),
      defaultDrawNodeHover: (to, d) => this.hover(to, d as never),
    });
    pickedBy(this.sigma, (x, y) => this.at(x, y));
    this.sigma.on("beforeRender", () => {
      this.taken = [];
      this.watchPace();
    });
    this.sigma.on("afterRender", () => this.drawCaptions());
    this.recolour();
  }

  // at is what is at a point of the page.
  private at(x: number, y: number): Item {
    if (this.picture.marks.length === 0) return undefined;
    const { x: gx, y: gy } = this.sigma.viewportToGraph({ x, y });
    const pixel = 1 / this.sigma.scaleSize(1);
    const mark = pickMark(this.picture, this.positions, gx, gy, 4 * pixel);
    if (mark >= 0) return { mark };
    const line = pickLine(this.picture, this.positions, gx, gy, pixel);
    return line >= 0 ? { line } : undefined;
  }

  // watchPace leaves lines out of what moves, where they take so long to draw that it would stutter.
  private watchPace() {
    const now = performance.now();
    const isMoving = this.sigma.getCamera().isAnimated() || this.sigma.getMouseCaptor().isMoving;
    const took = now - this.pace.last;
    this.pace.last = now;
    if (!isMoving || took > 1000) {
      this.pace.slow = 0;
      return;
    }
    this.pace.slow = took > 70 ? this.pace.slow + 1 : 0;
    if (this.pace.slow >= 3 && !this.sigma.getSetting("hideEdgesOnMove")) setTimeout(() => this.sigma.setSetting("hideEdgesOnMove", true));
  }

  // recolour takes the colours of the theme.
  recolour() {
    this.inks = colours();
    this.look.inks = { ground: this.inks.ground, ring: this.inks.text, accent: this.inks.accent };
    const graph = this.sigma.getGraph();
    graph.updateEachNodeAttributes((key, a) => ({ ...a, color: opaque(this.inks.tones[this.picture.marks[Number(key)]!.tone]) }), { attributes: ["color"] });
    graph.updateEachEdgeAttributes((key, a) => ({ ...a, color: this.lineColour(Number(key)) }), { attributes: ["color"] });
  }

  private lineColour(i: number): string {
    return opaque(this.picture.lines[i]!.dashed ? this.inks.open : this.inks.rule);
  }

  // draw shows a picture, once it is ready; what was there before stays until then. It is made ready in parts, so that the page stays
  // quick, unless another is asked for meanwhile.
  async draw(picture: Picture, positions: Float64Array) {
    const mine = ++this.drawing;
    const pause = sliced();
    const graph = new MultiDirectedGraph<MarkAttributes, LineAttributes>();
    const near = picture.marks.map(() => ({ marks: new Set<number>(), lines: new Set<number>() }));
    for (const [i, m] of picture.marks.entries()) {
      graph.addNode(String(i), this.markAttributes(m, i, positions));
      if (i % 200 === 0) await pause();
    }
    for (const [i, l] of picture.lines.entries()) {
      near[l.from]!.marks.add(l.to);
      near[l.from]!.lines.add(i);
      near[l.to]!.marks.add(l.from);
      near[l.to]!.lines.add(i);
      graph.addDirectedEdgeWithKey(String(i), String(l.from), String(l.to), { width: l.width, dashed: l.dashed ? 1 : 0, focus: 0, color: opaque(l.dashed ? this.inks.open : this.inks.rule) });
      if (i % 200 === 0) await pause();
    }
    if (mine !== this.drawing) return;
    const isFirst = this.picture.marks.length === 0;
    const pointed = this.nameOf(this.pointed);
    this.picture = picture;
    this.positions = positions;
    this.near = near;
    this.captions = captionsOf(picture, positions);
    this.look.strength = Math.max(0.16, Math.min(0.75, 14 / Math.sqrt(picture.lines.length + 1)));
    this.pointed = this.itemOf(pointed);
    this.chosen = undefined; // is told anew by whoever asked for the picture
    this.lit = { marks: new Set(), lines: new Set() };
    this.look.faded = 1;
    this.sigma.setCustomBBox(bounds(picture, positions));
    // What the mouse is at has another index now.
    const inner = this.sigma as unknown as { hoveredNode: string | null; hoveredEdge: string | null };
    inner.hoveredNode = this.pointed && "mark" in this.pointed ? String(this.pointed.mark) : null;
    inner.hoveredEdge = this.pointed && "line" in this.pointed ? String(this.pointed.line) : null;
    this.sigma.setGraph(graph);
    if (isFirst) this.sigma.getCamera().setState({ x: 0.5, y: 0.5, ratio: 1, angle: 0 });
    this.onDrawn();
  }

  private markAttributes(m: Mark, i: number, positions: Float64Array): MarkAttributes {
    return {
      x: positions[2 * i]!, y: positions[2 * i + 1]!, size: m.spot.radius, label: m.name, color: opaque(this.inks.tones[m.tone]),
      shape: shapes[m.shape], ingress: m.ingress, egress: m.egress, inside: m.inside ? 1 : 0, focus: 0,
    };
  }

  private markFocus(i: number): number {
    if (this.chosen && "mark" in this.chosen && this.chosen.mark === i) return 2;
    return this.lit.marks.has(i) ? 1 : 0;
  }

  private lineFocus(i: number): number {
    return this.lit.lines.has(i) ? 1 : 0;
  }

  private hasFocus(): boolean {
    return this.pointed !== undefined || this.chosen !== undefined;
  }

  // around is what is pointed at or, if nothing is, chosen, and its neighbours.
  private around(): { marks: Set<number>; lines: Set<number> } {
    const of = this.pointed ?? this.chosen;
    if (of === undefined) return { marks: new Set(), lines: new Set() };
    if ("mark" in of) {
      const near = this.near[of.mark];
      return { marks: new Set(near ? [of.mark, ...near.marks] : []), lines: near?.lines ?? new Set() };
    }
    const l = this.picture.lines[of.line];
    return { marks: new Set(l ? [l.from, l.to] : []), lines: new Set(l ? [of.line] : []) };
  }

  choose(chosen: Chosen) {
    const before = this.chosen;
    this.chosen = this.itemOf(chosen);
    this.relight(before);
  }

  private itemOf(c: Chosen): Item {
    if (c === undefined) return undefined;
    if ("group" in c || c.from === c.to) {
      const mark = this.picture.indexOf.get("group" in c ? c.group : c.from);
      return mark === undefined ? undefined : { mark };
    }
    const line = this.picture.lines.findIndex((l) => l.edge.from === c.from && l.edge.to === c.to);
    return line < 0 ? undefined : { line };
  }

  // nameOf is the inverse, of what is shown.
  nameOf(item: Item): Chosen {
    if (item === undefined) return undefined;
    if ("mark" in item) {
      const m = this.picture.marks[item.mark];
      return m && { group: m.group.id };
    }
    const l = this.picture.lines[item.line];
    return l && { from: l.edge.from, to: l.edge.to };
  }

  shown(): { picture: Picture; positions: Float64Array } {
    return { picture: this.picture, positions: this.positions };
  }

  point(pointed: Item) {
    this.pointed = pointed;
    this.relight(undefined);
  }

  // relight draws anew what gains or loses the focus, and nothing else.
  private relight(before: Item) {
    const now = this.around();
    const marks = new Set([...differ(this.lit.marks, now.marks), ...[before, this.chosen].flatMap((c) => (c && "mark" in c ? [c.mark] : []))]);
    const lines = differ(this.lit.lines, now.lines);
    this.lit = now;
    this.look.faded = this.hasFocus() ? 0.13 : 1;
    const graph = this.sigma.getGraph();
    const [nodes, edges]: [string[], string[]] = [[], []];
    // The attributes are changed in place, since sigma would process everything at each event.
    for (const i of marks) {
      const key = String(i);
      if (!graph.hasNode(key)) continue;
      const a = graph.getNodeAttributes(key);
      a.focus = this.markFocus(i);
      a.forceLabel = a.focus === 2 || (a.focus === 1 && now.marks.size <= 40);
      nodes.push(key);
    }
    for (const i of lines) {
      const key = String(i);
      if (!graph.hasEdge(key)) continue;
      graph.getEdgeAttributes(key).focus = this.lineFocus(i);
      edges.push(key);
    }
    this.sigma.refresh({ partialGraph: { nodes, edges }, skipIndexation: true, schedule: true });
  }

  private label(to: CanvasRenderingContext2D, d: MarkAttributes & { key: string }) {
    // Workloads are many: their cluster has a name, and theirs come when one looks closer.
    if (!d.forceLabel && d.size < 11 && this.picture.marks[Number(d.key)]?.spot.cluster !== "") return;
    const isLarge = d.size > 26;
    to.font = `${isLarge ? 600 : 500} ${isLarge ? 13 : 12}px ${this.inks.font}`;
    const key = isLarge ? `${d.label}\n` : d.label;
    let width = this.widths.get(key);
    if (width === undefined) {
      if (this.widths.size > 5000) this.widths.clear();
      width = to.measureText(d.label).width;
      this.widths.set(key, width);
    }
    const y = d.y + d.size * 1.1 + 17;
    const box: (typeof this.taken)[number] = [d.x - width / 2 - 3, y - 13, d.x + width / 2 + 3, y + 4];
    const isFree = this.taken.every((t) => box[2] < t[0] || box[0] > t[2] || box[3] < t[1] || box[1] > t[3]);
    if (!isFree && !d.forceLabel) return;
    this.taken.push(box);
    this.write(to, d.label, d.x, y, this.hasFocus() && d.focus === 0 ? 0.25 : 1);
  }

  private write(to: CanvasRenderingContext2D, text: string, x: number, y: number, alpha: number) {
    to.save();
    to.globalAlpha = alpha;
    to.textAlign = "center";
    to.direction = "ltr";
    to.lineWidth = 3.5;
    to.lineJoin = "round";
    to.strokeStyle = this.inks.ground;
    to.strokeText(text, x, y);
    to.fillStyle = this.inks.text;
    to.fillText(text, x, y);
    to.restore();
  }

  // drawCaptions names what workloads stand together in, as long as their own names are too small.
  private drawCaptions() {
    const to = this.sigma.getCanvases()["labels"]?.getContext("2d");
    if (!to || this.captions.length === 0) return;
    const scale = this.sigma.scaleSize(1);
    to.font = `600 13px ${this.inks.font}`;
    const { width, height } = this.sigma.getDimensions();
    for (const c of this.captions) {
      const at = this.sigma.graphToViewport({ x: c.x, y: c.y });
      if (at.x < -100 || at.y < -20 || at.x > width + 100 || at.y > height + 20 || c.members * scale < 18) continue;
      this.write(to, c.text, at.x, at.y - 8, this.hasFocus() ? 0.5 : 1);
    }
  }

  private hover(to: CanvasRenderingContext2D, d: MarkAttributes & { key: string }) {
    const m = this.picture.marks[Number(d.key)];
    if (!m) return;
    to.save();
    to.font = `600 13px ${this.inks.font}`;
    to.textAlign = "center";
    to.direction = "ltr";
    const width = to.measureText(d.label).width + 16;
    const y = d.y + d.size * 1.1 + 17;
    to.fillStyle = this.inks.surface;
    to.strokeStyle = this.inks.line;
    to.beginPath();
    to.roundRect(d.x - width / 2, y - 15, width, 22, 5);
    to.fill();
    to.stroke();
    to.fillStyle = this.inks.text;
    to.fillText(d.label, d.x, y);
    to.restore();
  }

  kill() {
    this.drawing++;
    this.sigma.kill();
  }

  zoom(by: number) {
    const camera = this.sigma.getCamera();
    const ratio = camera.getBoundedRatio(camera.ratio / by);
    void camera.animate({ ratio }, { duration: this.quick.matches ? 1 : 120 });
  }

  fit() {
    void this.sigma.getCamera().animate({ x: 0.5, y: 0.5, ratio: 1, angle: 0 }, { duration: this.quick.matches ? 1 : 200 });
  }

  pan(dx: number, dy: number) {
    const camera = this.sigma.getCamera();
    camera.setState({ x: camera.x + dx * camera.ratio, y: camera.y + dy * camera.ratio });
  }

  // show moves the camera, where a mark is not in sight.
  show(i: number) {
    const data = this.sigma.getNodeDisplayData(String(i));
    if (!data) return;
    const at = this.sigma.framedGraphToViewport(data);
    const { width, height } = this.sigma.getDimensions();
    if (at.x > 40 && at.x < width - 40 && at.y > 40 && at.y < height - 40) return;
    void this.sigma.getCamera().animate({ x: data.x, y: data.y }, { duration: this.quick.matches ? 1 : 150 });
  }
}

// pickedBy has sigma ask us what is at a point, instead of the pixels. These are parts of it that its types hide.
function pickedBy(sigma: Drawing, at: (x: number, y: number) => Item) {
  const inner = sigma as unknown as { getNodeAtPosition(p: { x: number; y: number }): string | null; getEdgeAtPoint(x: number, y: number): string | null; pickingLayers: Set<string> };
  inner.getNodeAtPosition = ({ x, y }) => {
    const found = at(x, y);
    return found && "mark" in found ? String(found.mark) : null;
  };
  inner.getEdgeAtPoint = (x, y) => {
    const found = at(x, y);
    return found && "line" in found ? String(found.line) : null;
  };
  inner.pickingLayers.clear();
}

// captionsOf are the names of clusters, above their middle.
function captionsOf(picture: Picture, at: Float64Array) {
  const of = new Map<string, { text: string; left: number; right: number; y: number; members: number }>();
  picture.marks.forEach((m, i) => {
    if (m.spot.cluster === "" || m.spot.place) return;
    const [x, y] = [at[2 * i]!, at[2 * i + 1]! + m.spot.radius * 1.4];
    const c = of.get(m.spot.cluster) ?? { text: plain(shortened(m.spot.cluster.replace(/^(ns|net|label)\//, ""), 36)), left: x, right: x, y, members: 0 };
    c.left = Math.min(c.left, x);
    c.right = Math.max(c.right, x);
    c.y = Math.max(c.y, y);
    of.set(m.spot.cluster, c);
  });
  return [...of.values()].map((c) => ({ text: c.text, x: (c.left + c.right) / 2, y: c.y, members: c.right - c.left }));
}

function* differ(a: ReadonlySet<number>, b: ReadonlySet<number>): Generator<number> {
  for (const x of a) if (!b.has(x)) yield x;
  for (const x of b) if (!a.has(x)) yield x;
}

// bounds is what is in sight at first: everything, and not less than a few groups take, so that these do not fill the page.
function bounds(picture: Picture, at: Float64Array): { x: [number, number]; y: [number, number] } {
  let [left, right, bottom, top] = [Infinity, -Infinity, Infinity, -Infinity];
  picture.marks.forEach((m, i) => {
    const r = m.spot.radius * 1.3;
    left = Math.min(left, at[2 * i]! - r);
    right = Math.max(right, at[2 * i]! + r);
    bottom = Math.min(bottom, at[2 * i + 1]! - r);
    top = Math.max(top, at[2 * i + 1]! + r);
  });
  if (left > right) [left, right, bottom, top] = [0, 0, 0, 0];
  const least = (a: number, b: number, size: number): [number, number] => (b - a >= size ? [a, b] : [(a + b - size) / 2, (a + b + size) / 2]);
  return { x: least(left, right, 500), y: least(bottom, top, 360) };
}

// towards is the mark that comes next in a direction: near, and not far off the line.
export function towards(positions: Float64Array, from: number, dx: number, dy: number): number {
  const [x, y] = [positions[2 * from]!, positions[2 * from + 1]!];
  let [best, least] = [-1, Infinity];
  for (let i = 0; i < positions.length / 2; i++) {
    if (i === from) continue;
    const [vx, vy] = [positions[2 * i]! - x, positions[2 * i + 1]! - y];
    const ahead = vx * dx + vy * dy;
    const aside = Math.abs(vx * dy - vy * dx);
    if (ahead <= 0 || aside > ahead * 1.2) continue;
    const far = ahead + 2 * aside;
    if (far < least) [best, least] = [i, far];
  }
  return best;
}

const arrows: Record<string, [number, number]> = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };

export default function Canvas({ picture, positions, chosen, onChoose, onOpen, onLost, handle }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const stage = useRef<Stage>(undefined);
  const at = useRef(""); // the group where the keyboard is
  const isDark = useIsDark();
  const last = useRef({ chosen, onChoose, onOpen, onLost });
  last.current = { chosen, onChoose, onOpen, onLost };

  useEffect(() => {
    const element = box.current!;
    const s = new Stage(element, () => s.choose(last.current.chosen));
    stage.current = s;
    const { sigma } = s;
    const cursor = (c: string) => (element.style.cursor = c);
    sigma.on("enterNode", ({ node }) => (s.point({ mark: Number(node) }), cursor("pointer")));
    sigma.on("leaveNode", () => (s.point(undefined), cursor("")));
    sigma.on("enterEdge", ({ edge }) => (s.point({ line: Number(edge) }), cursor("pointer")));
    sigma.on("leaveEdge", () => (s.point(undefined), cursor("")));
    sigma.on("clickNode", ({ node }) => {
      at.current = s.shown().picture.marks[Number(node)]?.group.id ?? "";
      last.current.onChoose(s.nameOf({ mark: Number(node) }), false);
    });
    sigma.on("doubleClickNode", ({ node, preventSigmaDefault }) => {
      preventSigmaDefault();
      const m = s.shown().picture.marks[Number(node)];
      if (m) last.current.onOpen(m.group);
    });
    sigma.on("clickEdge", ({ edge }) => last.current.onChoose(s.nameOf({ line: Number(edge) }), false));
    sigma.on("clickStage", () => last.current.onChoose(undefined, false));
    const lost = () => last.current.onLost();
    for (const c of Object.values(sigma.getCanvases())) c.addEventListener("webglcontextlost", lost);
    const watch = new ResizeObserver(() => {
      if (element.clientWidth > 0 && element.clientHeight > 0) sigma.scheduleRefresh();
    });
    watch.observe(element);
    return () => {
      watch.disconnect();
      for (const c of Object.values(sigma.getCanvases())) c.removeEventListener("webglcontextlost", lost);
      stage.current = undefined;
      s.kill();
    };
  }, []);

  useEffect(() => {
    void stage.current?.draw(picture, positions);
  }, [picture, positions]);
  useEffect(() => stage.current?.choose(chosen), [chosen]);
  useEffect(() => stage.current?.recolour(), [isDark]);

  useImperativeHandle(handle, () => ({
    zoom: (by) => stage.current?.zoom(by),
    fit: () => stage.current?.fit(),
    focus: () => box.current?.focus(),
  }));

  function press(e: KeyboardEvent) {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    const s = stage.current;
    if (!s) return;
    const { picture, positions } = s.shown();
    const go = (i: number) => {
      if (i < 0 || i >= picture.marks.length) return;
      at.current = picture.marks[i]!.group.id;
      s.point({ mark: i });
      s.show(i);
      announce(spoken(picture, i));
    };
    const arrow = arrows[e.key];
    const now = picture.indexOf.get(at.current) ?? -1;
    const here = picture.marks[now];
    if (arrow && e.shiftKey) s.pan(arrow[0] * 0.1, arrow[1] * 0.1);
    else if (arrow) go(here ? towards(positions, now, ...arrow) : nearestTo(positions));
    else if (e.key === "Home") go(0);
    else if (e.key === "End") go(picture.marks.length - 1);
    else if (e.key === "Enter" && here) {
      if (e.shiftKey) onOpen(here.group);
      else onChoose({ group: here.group.id }, true);
    } else if (e.key === "+" || e.key === "=") s.zoom(1.5);
    else if (e.key === "-") s.zoom(1 / 1.5);
    else if (e.key === "0") s.fit();
    else if (e.key === "Escape") {
      s.point(undefined);
      onChoose(undefined, true);
    } else return;
    e.preventDefault();
  }

  return (
    <div
      ref={box}
      className="map-canvas"
      role="application"
      tabIndex={0}
      aria-label="The map. Arrow keys go from group to group, Enter tells of one, Shift and Enter opens it, plus and minus zoom, 0 shows all. The same is there as a list."
      onKeyDown={press}
      onBlur={() => stage.current?.point(undefined)}
    />
  );
}

// nearestTo is the mark in the middle.
function nearestTo(positions: Float64Array): number {
  let [best, least] = [-1, Infinity];
  for (let i = 0; i < positions.length / 2; i++) {
    const far = positions[2 * i]! ** 2 + positions[2 * i + 1]! ** 2;
    if (far < least) [best, least] = [i, far];
  }
  return best;
}
