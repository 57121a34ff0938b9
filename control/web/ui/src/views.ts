// What the server answers, by view. Lists may be null: that is how Go writes an empty one, so read them through list(). What is
// optional is left out where it is empty, and where the reader may not see it.

export type Revision = { revision: string };

export type Session = {
  user: string;
  groups: string[] | null;
  csrf: string;
  login: Login;
  oidc: boolean;
  readOnly: boolean;
  cluster: string;
};
// How one logs in: by pasting a token, by the one-time code that a command printed, or not at all.
export type Login = "token" | "code" | "none";

export type Me = Revision & {
  user: string;
  groups: string[] | null;
  allNamespaces: boolean;
  namespaces: string[] | null;
  labels: string[] | null; // keys to group by, most used first
  networks: string[] | null;
  may: { plan: boolean; accounts: boolean };
  workloads: number;
  policies: number;
};

export type Verdict = "Allow" | "Drop" | "Reject";
export type Action = Verdict | "Pass";

// Decision says what happens at one end, and by what.
export type Decision = {
  verdict: Verdict;
  policy?: string; // its name
  rule?: string;
  kind?: string;
  namespace?: string;
  reason: string;
  ties?: string[] | null;
  hidden?: boolean;
};

export type End = { asked: string; workload?: string; address: string; peers?: string[] | null };

export type Step = {
  policy?: string; // ID
  rule?: string;
  direction: "ingress" | "egress";
  tier?: string;
  tierNumber?: number;
  priority?: number;
  action: Action;
  outcome: string;
  why?: string;
  wants?: string[] | null;
  needs?: string;
  hidden?: boolean;
};

export type Walk = Decision & {
  needs?: string[] | null;
  subject?: string;
  sourcePort?: number;
  steps: Step[] | null;
  without?: Decision;
  others: number;
  listed?: Step[] | null;
};

export type Explained = Revision & {
  from: End;
  to: End;
  traffic: string;
  toName?: string;
  verdict: Verdict;
  needs?: string[] | null;
  egress: Walk;
  ingress: Walk;
  staged?: Staged;
};
// What the flow would be if staged policies were enforced.
export type Staged = { verdict: Verdict; egress?: Decision; ingress?: Decision; by?: string[] | null }; // by: those that make it so

export type WorkloadKind = "pod" | "vm" | "node" | "external" | "service";

export type WorkloadItem = {
  id: string;
  kind: WorkloadKind;
  namespace?: string;
  name: string;
  addresses: string[] | null;
  labels: Record<string, string> | null;
  network?: string;
  policies: number;
  isolatedIngress: boolean;
  isolatedEgress: boolean;
  realization: "realized" | "realizing" | "failed" | "none";
  ended?: boolean;
};
export type Workloads = Revision & { total: number; items: WorkloadItem[] | null; continue?: string };

export type EffectiveRule = {
  direction: "ingress" | "egress";
  policy?: string;
  rule?: string;
  tier?: string;
  tierNumber?: number;
  priority?: number;
  action: Action;
  traffic: string[] | null;
  peers: string[] | null;
  hidden?: boolean;
};
export type CloudObject = { kind: string; id: string; name?: string; account?: string; detail?: string };
export type Workload = Revision &
  Omit<WorkloadItem, "policies"> & {
    rules: EffectiveRule[] | null;
    policies: string[] | number | null;
    cloudObjects: CloudObject[] | null;
    agent?: string | null;
    status: { target: string; phase: string; message?: string }[] | null;
  };

export type Hits = { sessions: number; packets: number; bytes: number };
export type PolicyItem = {
  id: string;
  kind: string;
  namespace?: string;
  name?: string;
  tier: string;
  tierNumber: number;
  priority: number;
  mode: "Enforce" | "Stage";
  rules: number;
  appliesTo: number;
  phase?: string;
  currentNodes: number;
  desiredNodes: number;
  refusals: number;
  problems: number;
  hits?: Hits | null;
};
export type Tier = { number: number; name: string };
export type Policies = Revision & { total: number; tiers: Tier[] | null; items: PolicyItem[] | null; continue?: string };

export type PolicyRule = {
  index: number;
  name?: string;
  direction: "ingress" | "egress";
  action: Action;
  traffic: string[] | null;
  peers: string[] | null;
  hits?: Hits | null;
};
export type Policy = Revision &
  Omit<PolicyItem, "rules" | "appliesTo" | "refusals" | "problems"> & {
    rules: PolicyRule[] | null;
    appliesTo: { count: number; sample: string[] | null };
    targets: { name: string; phase: string; message?: string }[] | null;
    refusals: { rule?: string; reason: string; message: string; workloads?: string[] | null }[] | null;
    problems: { field?: string; message: string }[] | null;
  };

export type Quota = { name: string; used: number; of: number };
export type AccountTarget = {
  name: string;
  network?: string;
  phase: string;
  lastSync?: string;
  error?: string;
  quotas: Quota[] | null;
};
export type Account = {
  namespace: string;
  name: string;
  provider: string;
  problem?: string;
  vms: number;
  regions: { name: string; lastPoll?: string; error?: string }[] | null;
  targets: AccountTarget[] | null;
};
export type Loop = { name: string; last?: string; busySince?: string; error?: string; stuck?: boolean };
export type Accounts = Revision & { items: Account[] | null; loops: Loop[] | null };

export type GroupKind = "namespace" | "network" | "label" | "nodes" | "workload" | "outside" | "hidden";
export type MapGroup = {
  id: string;
  name: string;
  kind: GroupKind;
  workloads: number;
  pods: number;
  vms: number;
  nodes: number;
  isolatedIngress: number;
  isolatedEgress: number;
};
export type MapEdge = {
  from: string;
  to: string;
  pairs: number;
  allowed: number;
  partial: number;
  depends: number;
  traffic: string[] | null;
  moreTraffic: number;
  by: "rule" | "default";
};
export type WorldMap = Revision & {
  by: string;
  groups: MapGroup[] | null;
  edges: MapEdge[] | null;
  omitted: { groups: number; edges: number };
};

export type MatrixCell = {
  pairs: number;
  apart: number;
  allowed: number;
  denied: number;
  partial: number;
  depends: number;
};
export type MatrixCounts = readonly [pairs: number, apart: number, allowed: number, denied: number, partial: number, depends: number];
export type Matrix = Revision & {
  by: string;
  ports: string[] | null;
  groups: { id: string; name: string; workloads: number }[] | null;
  counts: MatrixCounts[] | null; // each once: those of many cells are equal
  cells: number[][] | null; // by the group that flows come from and that which they go to, as places in counts; -1 where it is not told
  omitted: { groups: number };
};

export type CellWay = {
  pairs: number;
  from: string; // an example
  to: string;
  verdict: Verdict;
  egress: Decision;
  ingress: Decision;
  needs?: string[] | null;
};
export type Cell = Revision & {
  from: string;
  to: string;
  asked: { port: string; allowed: number; denied: number; depends: number; by: CellWay[] | null; moreBy?: number }[] | null;
};

export function list<T>(l: readonly T[] | null | undefined): readonly T[] {
  return l ?? none;
}

const none: readonly never[] = []; // always the same, so that what is made of it is not made again
