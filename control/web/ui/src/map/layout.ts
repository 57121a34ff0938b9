// Where groups stand on the map: by what there is alone, so that the same state is the same picture.

export type Spot = {
  id: string;
  radius: number;
  cluster: string; // those of one cluster stand together; "" stands alone
  place?: "above" | "below"; // apart from all others
};
export type Pull = { from: number; to: number }; // indexes of spots

// pause is called between parts of the work, and may take time, so that no part is long.
type Pause = () => Promise<void> | undefined;

const gap = 20; // between discs, for their names
const forced = 400; // most discs that forces arrange; more are packed in rows
const golden = Math.PI * (3 - Math.sqrt(5));

// hash is FNV-1a with a last mix, as a number in [0, 1).
export function hash(s: string): number {
  let h = 0x811c9dc5;
  for (let i = 0; i < s.length; i++) h = Math.imul(h ^ s.charCodeAt(i), 0x01000193);
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b);
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35);
  return ((h ^ (h >>> 16)) >>> 0) / 2 ** 32;
}

type Disc = { id: string; members: number[]; radius: number; x: number; y: number; spread: number };

// place returns x and y of each spot, one after the other.
export async function place(spots: readonly Spot[], pulls: readonly Pull[], pause: Pause = () => undefined): Promise<Float64Array> {
  const { discs, discOf } = gather(spots);
  if (discs.length <= forced) await force(discs, links(discOf, pulls), pause);
  else rows(discs);
  const out = new Float64Array(2 * spots.length);
  let [left, right, top, bottom] = [0, 0, 0, 0];
  for (const d of discs) {
    left = Math.min(left, d.x - d.radius);
    right = Math.max(right, d.x + d.radius);
    top = Math.max(top, d.y + d.radius);
    bottom = Math.min(bottom, d.y - d.radius);
    d.members.forEach((spot, k) => {
      const r = d.members.length === 1 ? 0 : d.spread * Math.sqrt(k + 0.5);
      out[2 * spot] = d.x + r * Math.cos(k * golden);
      out[2 * spot + 1] = d.y + r * Math.sin(k * golden);
    });
    if (d.members.length > 400) await pause();
  }
  spots.forEach((s, i) => {
    if (s.place === undefined) return;
    out[2 * i] = (left + right) / 2;
    out[2 * i + 1] = s.place === "above" ? top + 3 * gap + s.radius : bottom - 3 * gap - s.radius;
  });
  return out;
}

const byID = (a: { id: string }, b: { id: string }) => (a.id < b.id ? -1 : a.id > b.id ? 1 : 0);

// gather makes a disc of each cluster and of each spot that stands alone, in the order of their names.
function gather(spots: readonly Spot[]): { discs: Disc[]; discOf: Int32Array } {
  const of = new Map<string, Disc>();
  const order = spots.map((s, i) => ({ id: s.id, i })).sort(byID);
  for (const { i } of order) {
    const s = spots[i]!;
    if (s.place !== undefined) continue;
    const key = s.cluster === "" ? `1${s.id}` : `0${s.cluster}`;
    const d = of.get(key) ?? { id: key, members: [], radius: 0, x: 0, y: 0, spread: 0 };
    d.members.push(i);
    d.radius = Math.max(d.radius, s.radius);
    of.set(key, d);
  }
  const discs = [...of.values()].sort(byID);
  const discOf = new Int32Array(spots.length).fill(-1);
  discs.forEach((d, k) => {
    for (const i of d.members) discOf[i] = k;
    if (d.members.length === 1) return;
    // Neighbours on such a spiral are about 1.6 times its spread apart. Few have room for lines between them.
    d.spread = (2 * d.radius + (d.members.length <= 150 ? 18 : 4)) / 1.6;
    d.radius += d.spread * Math.sqrt(d.members.length);
  });
  return { discs, discOf };
}

// links counts the pulls between each two discs.
function links(discOf: Int32Array, pulls: readonly Pull[]): { a: number; b: number; weight: number }[] {
  const of = new Map<number, number>();
  for (const p of pulls) {
    const [a, b] = [discOf[p.from]!, discOf[p.to]!];
    if (a < 0 || b < 0 || a === b) continue;
    const key = Math.min(a, b) * 65536 + Math.max(a, b);
    of.set(key, (of.get(key) ?? 0) + 1);
  }
  const degree = new Map<number, number>();
  const out = [...of].sort((x, y) => x[0] - y[0]).map(([key, n]) => ({ a: Math.floor(key / 65536), b: key % 65536, weight: 1 + Math.log2(n) }));
  for (const l of out) for (const d of [l.a, l.b]) degree.set(d, (degree.get(d) ?? 0) + 1);
  // Who is linked to all is pulled to nobody in particular.
  for (const l of out) l.weight /= Math.sqrt(degree.get(l.a)! * degree.get(l.b)!);
  return out;
}

// force lets linked discs attract each other and all others push each other away, a fixed number of times.
async function force(discs: Disc[], pulls: { a: number; b: number; weight: number }[], pause: Pause) {
  const n = discs.length;
  if (n < 2) return;
  const mean = discs.reduce((sum, d) => sum + d.radius, 0) / n;
  const ideal = 2 * mean + 2.5 * gap;
  const reach = ideal * Math.sqrt(n);
  const [x, y, dx, dy] = [new Float64Array(n), new Float64Array(n), new Float64Array(n), new Float64Array(n)];
  discs.forEach((d, i) => {
    const [angle, far] = [2 * Math.PI * hash(`${d.id}/angle`), reach * (0.15 + 0.6 * Math.sqrt(hash(`${d.id}/distance`)))];
    x[i] = far * Math.cos(angle);
    y[i] = far * Math.sin(angle);
  });
  const times = 260;
  for (let t = 0; t < times; t++) {
    dx.fill(0);
    dy.fill(0);
    for (let i = 0; i < n; i++) {
      for (let j = i + 1; j < n; j++) {
        const [vx, vy] = [x[i]! - x[j]!, y[i]! - y[j]!];
        const far = Math.sqrt(vx * vx + vy * vy) || 1e-6;
        const between = Math.max(far - discs[i]!.radius - discs[j]!.radius, 4);
        const push = Math.min((ideal * ideal) / between, 4 * ideal) / far;
        dx[i]! += vx * push;
        dy[i]! += vy * push;
        dx[j]! -= vx * push;
        dy[j]! -= vy * push;
      }
    }
    for (const l of pulls) {
      const [vx, vy] = [x[l.b]! - x[l.a]!, y[l.b]! - y[l.a]!];
      const far = Math.sqrt(vx * vx + vy * vy) || 1e-6;
      const pull = (3 * l.weight * Math.max(far - discs[l.a]!.radius - discs[l.b]!.radius, 0)) / ideal;
      dx[l.a]! += vx * pull;
      dy[l.a]! += vy * pull;
      dx[l.b]! -= vx * pull;
      dy[l.b]! -= vy * pull;
    }
    const most = (reach / 5) * (1 - t / times) ** 1.5 + 0.5;
    for (let i = 0; i < n; i++) {
      dx[i]! -= x[i]! * 0.7 * Math.sqrt(n / 20);
      dy[i]! -= y[i]! * 1.7 * Math.sqrt(n / 20); // pages are wider than high
      const far = Math.sqrt(dx[i]! * dx[i]! + dy[i]! * dy[i]!) || 1e-6;
      const step = Math.min(far, most) / far;
      x[i]! += dx[i]! * step;
      y[i]! += dy[i]! * step;
    }
    await pause();
  }
  for (let t = 0; t < 120; t++) {
    if (!part(discs, x, y, t)) break;
    await pause();
  }
  discs.forEach((d, i) => {
    d.x = x[i]!;
    d.y = y[i]!;
  });
}

// part moves discs that overlap away from each other, and says whether any did.
function part(discs: Disc[], x: Float64Array, y: Float64Array, t: number): boolean {
  let moved = false;
  for (let i = 0; i < discs.length; i++) {
    for (let j = i + 1; j < discs.length; j++) {
      const want = discs[i]!.radius + discs[j]!.radius + gap;
      let [vx, vy] = [x[i]! - x[j]!, y[i]! - y[j]!];
      let far = Math.sqrt(vx * vx + vy * vy);
      if (far >= want - 0.01) continue;
      moved = true;
      if (far < 1e-6) [vx, vy, far] = [Math.cos(i + t), Math.sin(i + t), 1];
      const half = (want - far) / 2 / far;
      x[i]! += vx * half;
      y[i]! += vy * half;
      x[j]! -= vx * half;
      y[j]! -= vy * half;
    }
  }
  return moved;
}

// rows sets discs in rows, the large ones first.
function rows(discs: Disc[]) {
  const large = [...discs].sort((a, b) => b.radius - a.radius || byID(a, b));
  const area = large.reduce((sum, d) => sum + (2 * d.radius + gap) ** 2, 0);
  const width = Math.sqrt(area * 1.7);
  let [x, y, high] = [0, 0, 0];
  for (const d of large) {
    if (x > 0 && x + 2 * d.radius > width) {
      x = 0;
      y -= high;
      high = 0;
    }
    high = Math.max(high, 2 * d.radius + 1.6 * gap);
    d.x = x + d.radius - width / 2;
    d.y = y - d.radius;
    x += 2 * d.radius + gap;
  }
}

// sliced is a pause that gives way when the work has held for some milliseconds.
export function sliced(hold = 12, now: () => number = () => performance.now()): Pause {
  let start = now();
  return () => {
    if (now() - start < hold) return undefined;
    return new Promise<void>((go) => {
      // A message is a task of its own, and, unlike a timer, is not put off.
      const channel = new MessageChannel();
      channel.port1.onmessage = () => {
        channel.port1.close();
        start = now();
        go();
      };
      channel.port2.postMessage(null);
    });
  };
}
