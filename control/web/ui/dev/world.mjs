// A made-up world, the same each time: a few of each thing that a page must show, and names that must do no harm.
export class NoSuchView extends Error {}

// random is a small generator of numbers in [0, 1), always the same.
function random(seed) {
  return () => {
    seed = (seed * 1664525 + 1013904223) >>> 0;
    return seed / 2 ** 32;
  };
}

const hostile = [
  "<img src=x onerror=alert(1)>",
  "long-" + "x".repeat(495),
  "\u202Egpj.ylfdneirf",
  "two\nlines\tand a tab",
  "שירות-התשלומים",
  "zero\u200Bwidth\uFEFF",
  "z\u0336\u0335a\u0334\u0337l\u0338\u0336g\u0335\u0334o\u0337",
  "{{7*7}}${1}&amp;\"'`",
];

const teams = ["shop", "billing", "payments", "search", "identity", "logging", "monitoring", "ingress", "data", "ml", "kube-system", "edge"];
const apps = ["web", "api", "worker", "db", "cache", "queue", "cron"];
const r = random(7);
const pick = (l) => l[Math.floor(r() * l.length)];

const workloads = [];
let n = 0;
function add(kind, namespace, name, extra = {}) {
  n++;
  const prefix = { pod: "pod", node: "node", vm: "ee", external: "ee", service: "service" }[kind];
  const inID = kind === "vm" ? `virtualmachine-${name}` : name;
  workloads.push({
    id: namespace ? `${prefix}/${namespace}/${inID}` : `${prefix}/${inID}`, kind, namespace, name,
    addresses: [`10.${(n >> 16) & 255}.${(n >> 8) & 255}.${n & 255}`], labels: {}, network: "pods", policies: Math.floor(r() * 5),
    isolatedIngress: r() < 0.4, isolatedEgress: r() < 0.2, realization: r() < 0.85 ? "realized" : pick(["realizing", "failed", "none"]), ended: false, ...extra,
  });
}
for (const ns of teams) {
  for (const app of apps) {
    const copies = 1 + Math.floor(r() * 16);
    for (let i = 0; i < copies; i++) {
      add("pod", ns, `${app}-${(i * 7919 + n).toString(36)}-${Math.floor(r() * 46655).toString(36)}`, { labels: { app, team: ns, tier: app === "db" ? "data" : "front" }, ended: r() < 0.02 });
    }
  }
}
for (const ns of ["shop", "billing", "data"]) {
  for (let i = 0; i < 24; i++) {
    add("vm", ns, `i-0${Math.floor(r() * 2 ** 44).toString(16)}`, { labels: { "nephe.antrea.io/cloud-vm-name": `${pick(apps)}-${i}`, "nephe.antrea.io/tag-Role": pick(apps), "nephe.antrea.io/cloud-region": pick(["eu-west-1", "us-east-1"]) }, network: pick(["aws/111122223333/eu-west-1/vpc-0aa", "azure/sub-1/westeurope/vnet-core"]) });
  }
}
for (let i = 0; i < 6; i++) add("node", "", `node-${i + 1}`, { network: "nodes", addresses: [`192.168.0.${i + 10}`, `fd00::${i + 10}`] });
add("external", "data", "mainframe", { network: "", addresses: ["203.0.113.7"] });
add("service", "shop", "orders-db", { network: "aws/111122223333/eu-west-1/vpc-0aa" });
for (const name of hostile) add("pod", "shop", name, { labels: { app: name, [name.slice(0, 40)]: "label" } });
workloads.sort((a, b) => (a.id < b.id ? -1 : 1));

const tierNames = { 50: "emergency", 100: "securityops", 150: "networkops", 200: "platform", 220: "@admin", 250: "application", 252: "@kubernetes", 253: "baseline" };
const policies = [];
function addPolicy(kind, namespace, name, tierNumber, priority, extra = {}) {
  const desired = Math.floor(r() * 40);
  const phase = r() < 0.8 ? "Realized" : pick(["Realizing", "Pending", "Failed"]);
  policies.push({
    id: namespace ? `${kind}/${namespace}/${name}` : `${kind}/${name}`, kind, namespace, name, tier: tierNames[tierNumber], tierNumber, priority,
    mode: "Enforce", rules: 1 + Math.floor(r() * 6), appliesTo: Math.floor(r() * 300), phase, currentNodes: phase === "Realized" ? desired : Math.floor(desired * r()), desiredNodes: desired,
    refusals: 0, problems: 0, hits: r() < 0.8 ? { sessions: Math.floor(10 ** (r() * 7)), packets: Math.floor(10 ** (r() * 9)), bytes: Math.floor(10 ** (r() * 12)) } : null, ...extra,
  });
}
addPolicy("acnp", "", "quarantine", 50, 1);
addPolicy("acnp", "", "no-metadata-service", 100, 1);
addPolicy("annp", "shop", "egress", 100, 5);
addPolicy("acnp", "", "cloud-dns", 150, 10, { refusals: 2 });
addPolicy("acnp", "", "scan-subnets", 150, 10.5, { mode: "Stage" });
addPolicy("cnp", "", "admin-default", 220, 100);
for (const ns of teams) {
  for (const app of apps) addPolicy("annp", ns, `${app}-allow`, 250, 1 + Math.floor(r() * 90) / 2, { mode: r() < 0.1 ? "Stage" : "Enforce", refusals: r() < 0.06 ? 1 : 0, problems: r() < 0.04 ? 1 : 0 });
  addPolicy("networkpolicy", ns, "default-deny", 252, 0);
  addPolicy("networkpolicy", ns, "db", 252, 0);
}
for (const name of hostile) addPolicy("annp", "shop", name, 250, 33, { problems: 1 });
addPolicy("acnp", "", "baseline-deny", 253, 1, { hits: { sessions: 0, packets: 0, bytes: 0 } });
policies.sort((a, b) => a.tierNumber - b.tierNumber || a.priority - b.priority || (a.id < b.id ? -1 : 1));

const step = (policy, rule, tierNumber, priority, action, outcome, extra = {}) => ({ policy, rule, direction: "egress", tier: tierNames[tierNumber], tierNumber, priority, action, outcome, ...extra });

function explain(q, bounded) {
  for (const key of ["from", "to", "port"]) if (!q.get(key)) throw new NoSuchView(`${key}: say which`);
  if (!/^(TCP|UDP|SCTP)\/\d+$|^ICMP(\/\d+){0,2}$|^IGMP$/.test(q.get("port"))) throw new NoSuchView(`port: ${JSON.stringify(q.get("port"))}: want PROTO/PORT`);
  const end = (asked, address) => (/^[0-9a-f:.]+$/.test(asked) ? { asked, address: asked } : { asked, workload: `pod/${asked}`, address, peers: [`pod/${asked}`] });
  const denied = q.get("port") !== "TCP/5432";
  const others = (d, k) => Array.from({ length: k }, (_, i) => step(`annp/${teams[i % teams.length]}/${apps[i % apps.length]}-allow`, `${d}[0]`, 250, i + 1, "Allow", "not applied", { why: "applied to", wants: [`app=${apps[i % apps.length]}`], direction: d }));
  const hiddenStep = { direction: "ingress", action: "Drop", outcome: "not matched", why: "peer", hidden: true };
  const out = {
    from: end(q.get("from"), "10.0.0.1"), to: end(q.get("to"), "10.0.0.2"), traffic: q.get("port"), verdict: denied ? "Drop" : "Allow", needs: ["dns"],
    egress: {
      verdict: "Allow", policy: "scan", rule: "to-data", kind: "acnp", reason: "rule", subject: `pod/${q.get("from")}`, needs: ["dns"],
      steps: [
        step("acnp/quarantine", "all", 50, 1, "Drop", "not matched", { why: "peer", wants: ["namespace kubernetes.io/metadata.name=quarantine", "10.9.0.0/16"] }),
        step("annp/shop/egress", "no-tracker", 100, 5, "Drop", "assumed not to match", { needs: "dns" }),
        step("acnp/cloud-dns", "dns", 150, 10, "Allow", "not matched", { why: "protocol", wants: ["UDP/53"] }),
        step("acnp/delegate", "pass-shop", 150, 12, "Pass", "passed"),
        step("acnp/scan", "to-data", 250, 1, "Allow", "decided"),
        step("annp/shop/" + hostile[0], hostile[2], 250, 33, "Drop", "not reached", { why: "port", wants: ["TCP/1-1023"] }),
      ],
      without: { verdict: "Allow", policy: "", rule: "", reason: "default" }, others: 61,
    },
    ingress: {
      ...(denied
        ? { verdict: "Drop", policy: "db", rule: "", kind: "networkpolicy", namespace: "shop", reason: "isolation" }
        : { verdict: "Allow", policy: "db", rule: "ingress[0]", kind: "networkpolicy", namespace: "shop", reason: "rule", ties: ["annp/shop/tied"] }),
      subject: `pod/${q.get("to")}`,
      steps: [
        ...(bounded ? [hiddenStep] : []),
        { ...step("networkpolicy/shop/db", "ingress[0]", 252, 0, "Allow", denied ? "not matched" : "decided", denied ? { why: "port", wants: ["TCP/5432"] } : {}), direction: "ingress" },
        ...(denied ? [{ ...step("networkpolicy/shop/db", "isolation", 252, 0, "Drop", "decided"), direction: "ingress" }] : []),
      ],
      without: { verdict: denied ? "Allow" : "Drop", policy: "", rule: "", reason: denied ? "default" : "vm isolation" }, others: 12,
    },
    staged: denied ? { verdict: "Allow", egress: { verdict: "Allow", policy: "scan", rule: "to-data", kind: "acnp", reason: "rule" }, ingress: { verdict: "Allow", policy: "scan-subnets", rule: "in", kind: "acnp", reason: "rule" }, by: ["acnp/scan-subnets"] } : undefined,
  };
  if (q.get("all") === "true") {
    out.egress.listed = others("egress", 61);
    out.ingress.listed = others("ingress", 12);
  }
  return out;
}

// grow adds Pods until there are count workloads, in namespaces of about 70 each, and lets the map draw up to cap groups.
let cap = 2000;
export function grow(count, most) {
  if (most) cap = most;
  const namespaces = Math.min(400, Math.max(1, Math.ceil((count - workloads.length) / 70)));
  for (let i = 0; workloads.length < count; i++) {
    const ns = `team-${String(i % namespaces).padStart(3, "0")}`;
    const app = apps[i % apps.length];
    add("pod", ns, `${app}-${i.toString(36)}`, { labels: { app, team: ns, shard: String(i % 300) } });
  }
  workloads.sort((a, b) => (a.id < b.id ? -1 : 1));
}

// groupOf is the group of a workload: its ID, name and kind.
function groupOf(w, by) {
  const key = by.slice(6);
  if (by === "workload") return [w.id, w.namespace ? `${w.namespace}/${w.name}` : w.name, "workload"];
  if (by === "network") return [`net/${w.network}`, w.network || "(no network)", "network"];
  if (by.startsWith("label:")) return w.labels[key] === undefined ? [`label/${key}`, `(without ${key})`, "label"] : [`label/${key}=${w.labels[key]}`, `${key}=${w.labels[key]}`, "label"];
  return w.namespace === "" ? ["(nodes)", "(nodes)", "nodes"] : [`ns/${w.namespace}`, w.namespace, "namespace"];
}

// groupsBy are the groups of the map and the matrix; those of the group within are single workloads.
function groupsBy(by, search, within) {
  const of = new Map();
  for (const w of workloads) {
    let [id, name, kind] = groupOf(w, by);
    if (id === within) [id, name, kind] = groupOf(w, "workload");
    const g = of.get(id) ?? { id, name, kind, workloads: 0, pods: 0, vms: 0, nodes: 0, isolatedIngress: 0, isolatedEgress: 0 };
    g.workloads++;
    if (w.kind === "pod") g.pods++;
    if (w.kind === "vm") g.vms++;
    if (w.kind === "node") g.nodes++;
    if (w.isolatedIngress) g.isolatedIngress++;
    if (w.isolatedEgress) g.isolatedEgress++;
    of.set(id, g);
  }
  return [...of.values()].filter((g) => !search || g.name.includes(search)).sort((a, b) => (a.id < b.id ? -1 : 1));
}

function map(q, bounded) {
  const by = q.get("by") || "namespace";
  const all = groupsBy(by, q.get("search"), q.get("within"));
  const none = { workloads: 0, pods: 0, vms: 0, nodes: 0, isolatedIngress: 0, isolatedEgress: 0 };
  const groups = all.slice(0, cap).concat({ id: "outside", name: "outside", kind: "outside", ...none });
  if (bounded) groups.push({ id: "hidden", name: "(not visible to you)", kind: "hidden", ...none });
  const e = random(3);
  const edges = [];
  const seen = new Set();
  const most = Math.min(5000, Math.round(groups.length * 2.6));
  for (let i = 0; i < 2 * most && edges.length < most; i++) {
    // Few are reached by many.
    const [from, to] = [groups[Math.floor(e() * groups.length)], groups[Math.floor(e() ** 3 * groups.length)]];
    const isDefault = e() < 0.25;
    if (seen.has(`${from.id} ${to.id}`) || (isDefault && q.get("open") !== "true")) continue;
    seen.add(`${from.id} ${to.id}`);
    const pairs = Math.max(1, from.workloads) * Math.max(1, to.workloads);
    edges.push({ from: from.id, to: to.id, pairs, allowed: Math.ceil(pairs * e()), partial: pairs > 1 && e() < 0.2 ? 1 : 0, depends: e() < 0.1 ? 1 : 0, traffic: isDefault ? ["all traffic"] : ["TCP/443", "TCP/5432", "UDP/53"].slice(0, 1 + Math.floor(e() * 3)), moreTraffic: e() < 0.1 ? 4 : 0, by: isDefault ? "default" : "rule" });
  }
  edges.sort((a, b) => (a.from + " " + a.to < b.from + " " + b.to ? -1 : 1));
  return { by, groups, edges, omitted: { groups: Math.max(0, all.length - cap), edges: 0 } };
}

function matrix(q) {
  const by = q.get("by") || "namespace";
  const all = groupsBy(by, q.get("search")).map(({ id, name, workloads }) => ({ id, name, workloads }));
  const groups = all.slice(0, 300);
  const e = random(5);
  const counts = [];
  const cells = groups.map((f, from) => groups.map((t, to) => {
    const pairs = f.workloads * t.workloads - (from === to ? f.workloads : 0);
    const some = e();
    const allowed = some < 0.4 ? 0 : some < 0.7 ? pairs : Math.floor(pairs * e());
    const partial = some > 0.95 && pairs > allowed ? 1 : 0;
    return counts.push([pairs, 0, allowed, pairs - allowed - partial, partial, e() < 0.05 ? 1 : 0]) - 1;
  }));
  return { by, ports: q.getAll("port"), groups, counts, cells, omitted: { groups: all.length - groups.length } };
}

function cell(q) {
  const d = { verdict: "Drop", policy: "db", rule: "", kind: "networkpolicy", namespace: "shop", reason: "isolation" };
  const a = { verdict: "Allow", policy: "", rule: "", reason: "default" };
  return {
    from: q.get("from"), to: q.get("to"),
    asked: q.getAll("port").map((port) => ({ port, allowed: 12, denied: 30, depends: 1, by: [
      { pairs: 30, from: "pod/shop/web", to: "pod/shop/db", verdict: "Drop", egress: a, ingress: d },
      { pairs: 12, from: "pod/shop/api", to: "pod/shop/db", verdict: "Allow", egress: { verdict: "Allow", policy: hostile[0], rule: hostile[2], kind: "annp", namespace: "shop", reason: "rule" }, ingress: a },
    ] })),
  };
}

function preview(asked, bounded) {
  const none = { problems: [], changes: [], totals: { gained: 0, lost: 0, changed: 0 }, targets: [] };
  if (!asked?.manifests && !asked?.delete?.length) return none;
  if (String(asked.manifests).includes("broken")) {
    return {
      ...none, targetsDenied: "not all of the manifests can be taken",
      problems: [
        { object: "NetworkPolicy shop/broken", field: "spec.ingress[0].from[0].podSelector", message: 'matchLabels: "a b": a label\'s value has no space' },
        { object: "NetworkPolicy shop/db", field: "spec.egress[1]", message: "a name of DNS is not seen by a cloud", warning: true },
      ],
    };
  }
  const out = {
    problems: [{ object: "NetworkPolicy shop/db", field: "spec.egress[1]", message: "a name of DNS is not seen by a cloud", warning: true }],
    changes: [
      { from: { workloads: ["jobs/report"], prefixes: ["0.0.0.0/1", "128.0.0.0/2"] }, to: { workloads: ["shop/db"] }, lost: [{ traffic: "all traffic", before: "allow", after: "drop" }] },
      {
        from: { workloads: workloads.slice(0, 9).map((w) => (w.id.startsWith("pod/") ? w.id.slice(4) : w.id.replace("/", ":"))).concat(`shop/${hostile[0]}`) }, to: { workloads: ["shop/db"] },
        gained: [{ traffic: "TCP/5432", before: "drop", after: "allow" }, { traffic: "UDP/53", before: "drop", after: "depends" }],
        lost: [{ traffic: "UDP/1-52", before: "allow", after: "drop" }, { traffic: "ICMP", before: "allow", after: "drop" }],
        changed: [{ traffic: "TCP/22", before: "drop", after: "reject" }],
      },
      { from: { workloads: ["shop/new"], added: true }, to: { workloads: ["shop/db"] }, gained: [{ traffic: "TCP/5432", before: "absent", after: "allow" }] },
    ],
    totals: { gained: 3, lost: 2, changed: 1 },
    targets: [
      {
        name: "AWS/clouds/aws-production/eu-west-1/vpc-0aa", pending: true,
        changes: [{ key: "sg/class-7f/rule/in/9c", op: "create", text: "allow TCP/5432 from sg-0aa (app=web)" }, { key: "sg/class-7f/rule/in/11", op: "delete", text: "allow TCP/22 from 10.0.0.0/8" }],
        refusals: [{ policy: "annp/shop/egress", rule: "no-tracker", workloads: ["ee/shop/virtualmachine-i-1"], reason: "QuotaExceeded", message: "rules per security group", limit: 60, need: 63 }],
        usage: [{ quota: "rules per security group", of: "sg-0123 (class 7f)", used: 63, before: 41, limit: 60 }, { quota: "security groups per VPC", used: 212, before: 212, limit: 2500 }],
      },
      { name: "Azure/clouds/azure-core/westeurope/vnet-core", error: "it has not been read yet" },
    ],
  };
  if (bounded) return { ...out, targets: [], targetsDenied: "you may not create plans.isobar.dev: they tell of all namespaces" };
  return out;
}

function accounts() {
  const minutes = (m) => new Date(Date.now() - m * 60000).toISOString();
  return {
    items: [
      {
        namespace: "clouds", name: "aws-production", provider: "AWS", problem: "", vms: 48,
        regions: [{ name: "eu-west-1", lastPoll: minutes(0.3), error: "" }, { name: "us-east-1", lastPoll: minutes(21), error: "RequestLimitExceeded: Request limit exceeded. (request id 3f1c)" }],
        targets: [
          { name: "AWS/clouds/aws-production/eu-west-1/vpc-0aa", network: "vpc-0aa", phase: "Synced", lastSync: minutes(0.4), error: "", quotas: [{ name: "rules per security group", used: 41, of: 60 }, { name: "security groups per network interface", used: 5, of: 5 }, { name: "security groups per VPC", used: 212, of: 2500 }] },
          { name: "AWS/clouds/aws-production/us-east-1/vpc-0bb", network: "vpc-0bb", phase: "Failed", lastSync: minutes(24), error: "UnauthorizedOperation: You are not authorized to perform: ec2:AuthorizeSecurityGroupIngress", quotas: [{ name: "rules per security group", used: 57, of: 60 }] },
        ],
      },
      { namespace: "clouds", name: "azure-core", provider: "Azure", problem: "", vms: 24, regions: [{ name: "westeurope", lastPoll: minutes(1), error: "" }], targets: [{ name: "Azure/clouds/azure-core/westeurope/vnet-core", network: "/subscriptions/sub-1/resourcegroups/rg/providers/microsoft.network/virtualnetworks/core", phase: "Pending", lastSync: "", error: "", quotas: [] }] },
      { namespace: "clouds", name: hostile[3], provider: "AWS", problem: "secret clouds/creds: key \"aws.json\": not JSON", vms: 0, regions: null, targets: null },
    ],
    loops: [
      { name: "AWS/clouds/aws-production/eu-west-1", last: minutes(0.4), busySince: "", error: "", stuck: false },
      { name: "AWS/clouds/aws-production/us-east-1", last: minutes(24), busySince: minutes(11), error: "", stuck: true },
      { name: "compile", last: minutes(0.1), busySince: "", error: "", stuck: false },
    ],
  };
}

const peersOf = [["pods app=web in shop"], ["10.0.0.0/8", "not 10.9.0.0/16"], ["any"], ["group cg/trusted", "name *.example.com"]];
const rulesOf = (p) => Array.from({ length: p.rules }, (_, index) => ({
  index, name: index % 2 ? `rule-${index}` : "", direction: index % 3 === 2 ? "egress" : "ingress", action: p.kind === "networkpolicy" ? "Allow" : ["Allow", "Drop", "Reject", "Pass"][index % 4],
  traffic: [["TCP/443"], ["TCP/5432", "UDP/53"], ["all traffic"]][index % 3], peers: peersOf[index % 4], hits: p.hits && { ...p.hits, sessions: Math.floor(p.hits.sessions / (index + 1)) },
}));

function detail(p) {
  const ids = workloads.filter((w) => w.namespace === p.namespace || p.namespace === "").slice(0, Math.min(20, p.appliesTo)).map((w) => w.id);
  return {
    ...p, rules: rulesOf(p), appliesTo: { count: p.appliesTo, sample: ids },
    targets: [{ name: "AWS/clouds/aws-production/eu-west-1/vpc-0aa", phase: p.phase, message: p.phase === "Failed" ? "rules per security group: 63 of 60" : "" }, { name: "node/node-1", phase: "Realized", message: "" }],
    refusals: p.refusals ? [{ rule: "rule-1", reason: "Deny", message: "a security group cannot deny: 10.0.0.0/8 stays closed for the whole match", workloads: ids.slice(0, 3) }] : [],
    problems: p.problems ? [{ field: "spec.ingress[0].from[0].namespaceSelector", message: `the label ${hostile[2]} has no value` }] : [],
  };
}

function workload(w) {
  const mine = policies.filter((p) => p.namespace === w.namespace || p.namespace === "").slice(0, 9);
  return {
    ...w, policies: mine.map((p) => p.id),
    rules: mine.flatMap((p) => rulesOf(p).slice(0, 2).map((x) => ({ direction: x.direction, policy: p.id, rule: x.name || `${x.direction}[${x.index}]`, tier: p.tier, tierNumber: p.tierNumber, priority: p.priority, action: x.action, traffic: x.traffic, peers: x.peers }))).concat({ direction: "ingress", action: "Drop", traffic: ["TCP/22"], peers: ["any"], hidden: true }),
    cloudObjects: w.kind === "vm" ? [{ kind: "SecurityGroup", id: "sg-0123456789abcdef0", name: "isobar-class-7f", account: "clouds/aws-production", detail: "41 rules, 12 members" }, { kind: "NetworkInterface", id: "eni-0aa", name: "", account: "clouds/aws-production", detail: "its own groups are recorded" }] : [],
    agent: w.kind === "vm" ? "" : "node-1", status: [{ target: "node/node-1", phase: "Realized", message: "" }],
  };
}

function page(q, all) {
  const limit = Math.min(1000, Number(q.get("limit") || 500));
  const start = Number(q.get("continue") || 0);
  return { total: all.length, items: all.slice(start, start + limit), continue: start + limit < all.length ? String(start + limit) : "" };
}

const has = (q, key, value) => !q.get(key) || q.get(key) === String(value);

// answer is a view; undefined where there is no such thing.
export function answer(name, q, body, { bounded, empty }) {
  const ws = empty ? [] : workloads.filter((w) => !bounded || ["shop", "billing"].includes(w.namespace));
  const ps = empty ? [] : policies.filter((p) => !bounded || ["shop", "billing"].includes(p.namespace));
  switch (name) {
    case "me":
      return { user: "kim@example.com", groups: ["platform"], allNamespaces: !bounded, namespaces: bounded ? ["billing", "shop"] : [...teams].sort(), labels: ["app", "team", "tier", "nephe.antrea.io/tag-Role"], networks: ["nodes", "pods"], may: { plan: !bounded, accounts: true }, workloads: ws.length, policies: ps.length };
    case "workloads":
      return page(q, ws.filter((w) => has(q, "namespace", w.namespace) && has(q, "kind", w.kind) && `${w.id} ${w.addresses} ${JSON.stringify(w.labels)}`.includes(q.get("search") ?? "")));
    case "workload": {
      const w = ws.find((x) => x.id === q.get("id"));
      return w && workload(w);
    }
    case "policies": {
      const found = ps.filter((p) => has(q, "namespace", p.namespace) && has(q, "kind", p.kind) && has(q, "tier", p.tier) && p.id.includes(q.get("search") ?? ""));
      return { ...page(q, found), tiers: Object.entries(tierNames).map(([number, name]) => ({ number: Number(number), name })) };
    }
    case "policy": {
      const p = ps.find((x) => x.id === q.get("id"));
      return p && detail(p);
    }
    case "explain":
      return explain(q, bounded);
    case "map":
      return empty ? { by: "namespace", groups: [], edges: [], omitted: { groups: 0, edges: 0 } } : map(q, bounded);
    case "matrix":
      return matrix(q);
    case "cell":
      return cell(q);
    case "accounts":
      return empty ? { items: [], loops: [] } : accounts();
    case "preview":
      return preview(body, bounded);
  }
  throw new NoSuchView(`there is no view ${JSON.stringify(name)}`);
}
