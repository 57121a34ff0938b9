import { useMemo } from "react";
import { Link } from "wouter";
import { rowsOf, useMe, usePages } from "../data.ts";
import { pathOf, shownOf } from "../ids.ts";
import { Badge, Phase } from "../parts/badges.tsx";
import { ClearFilters, Filter } from "../parts/filter.tsx";
import { Isolation } from "../parts/isolation.tsx";
import { Page } from "../parts/page.tsx";
import { Search } from "../parts/search.tsx";
import { Bounds, Empty, Shown } from "../parts/states.tsx";
import { type Column, type Row, Table } from "../parts/table.tsx";
import { Text } from "../parts/text.tsx";
import { useQuery } from "../route.ts";
import { count, counted, plain } from "../text.ts";
import { useAnnounced } from "../useannounced.ts";
import { list, type WorkloadItem, type Workloads } from "../views.ts";
import { own } from "../own.ts";
import { calledOf, kindNames, labelsOf } from "../words.ts";

const params = ["search", "namespace", "kind"] as const;


const columns: readonly Column<WorkloadItem>[] = [
  { id: "kind", head: "Kind", width: "76px", cell: (w) => <span className="quiet-text">{own(kindNames, w.kind) ?? <Text>{w.kind}</Text>}</span> },
  {
    id: "name",
    head: "Workload",
    width: "auto",
    cell: (w) => (
      <div className="cell-name">
        <Link href={pathOf("workloads", w.id)} className="row-link" title={plain(w.id)}>
          {w.namespace && (
            <span className="quiet-text">
              <Text max={40}>{w.namespace}</Text>/
            </span>
          )}
          <Text max={80}>{nameIn(w)}</Text>
        </Link>
        {calledOf(w.labels) && (
          <span className="called">
            <Text max={60}>{calledOf(w.labels)}</Text>
          </span>
        )}
        {w.ended && <Badge>ended</Badge>}
      </div>
    ),
  },
  { id: "addresses", head: "Addresses", width: "170px", cell: (w) => <Addresses of={list(w.addresses)} /> },
  { id: "labels", head: "Labels", width: "24%", minor: true, cell: (w) => <LabelList of={w.labels} /> },
  { id: "policies", head: "Policies", width: "72px", isNumber: true, cell: (w) => (w.policies === 0 ? <span className="quiet-text">none</span> : count(w.policies)) },
  { id: "isolation", head: "Isolated", width: "116px", cell: (w) => <Isolation ingress={w.isolatedIngress} egress={w.isolatedEgress} /> },
  { id: "realization", head: "Enforced", width: "120px", cell: (w) => <Phase of={w.realization === "none" ? "" : w.realization} /> },
];

// nameIn is a workload's name without its namespace.
function nameIn(w: WorkloadItem): string {
  const { kind, name } = shownOf(w.id);
  return kind === "vm" ? name.slice(name.indexOf("/") + 1) : w.name;
}

function Addresses({ of }: { of: readonly string[] }) {
  if (of.length === 0) return <span className="quiet-text">–</span>;
  return (
    <span className="mono one-line" title={of.length > 1 ? of.map(plain).join(", ") : undefined}>
      <Text>{of[0]!}</Text>
      {of.length > 1 && <span className="quiet-text"> +{of.length - 1}</span>}
    </span>
  );
}

function LabelList({ of }: { of: Record<string, string> | null }) {
  const all = labelsOf(of);
  return (
    <span className="one-line quiet-text" title={Object.entries(of ?? {}).map(([k, v]) => plain(`${k}=${v}`)).join("\n")}>
      {all.slice(0, 4).map((label, i) => (
        <span key={i}>
          {i > 0 && ", "}
          <Text max={40}>{label}</Text>
        </span>
      ))}
      {all.length > 4 && ` +${all.length - 4}`}
    </span>
  );
}

export default function WorkloadsPage() {
  const query = useQuery();
  const me = useMe();
  const pages = usePages<Workloads>("workloads", Object.fromEntries(params.map((p) => [p, query.get(p)])));
  const first = pages.data?.pages[0];
  const rows = useMemo((): Row<WorkloadItem>[] => rowsOf<WorkloadItem>(pages.data?.pages ?? []).map((item) => ({ key: item.id, item })), [pages.data]);
  const total = first?.total ?? 0;
  const isFiltered = params.some((p) => query.get(p) !== "");
  useAnnounced(first && !pages.isPlaceholderData ? counted(total, "workload") : "");
  return (
    <Page title="Workloads" kicker="All that has addresses: Pods, VMs, Nodes, external hosts, cloud services">
      <Bounds what="workloads" />
      <div className="filters" role="search">
        <Search label="Search workloads" placeholder="Name, address or label" />
        <Filter label="Kind" param="kind" options={Object.entries(kindNames)} />
        <Filter label="Namespace" param="namespace" options={list(me?.namespaces).map((n) => [n, n] as const)} />
        <ClearFilters params={params} />
        <span className="filters-count quiet-text num">{first ? counted(total, "workload") : ""}</span>
      </div>
      <Shown of={{ ...pages, data: pages.data }} what="The workloads" rows={14}>
        {() =>
          total === 0 ? (
            isFiltered ? (
              <Empty title="No workload is like that">
                <p>None that you may see has all of what you asked for.</p>
                <ClearFilters params={params} />
              </Empty>
            ) : (
              <Empty title="There are no workloads">
                <p>Pods and Nodes come from the cluster. VMs come from clouds, once an account is added and a CloudEntitySelector picks them.</p>
                <Link href="/accounts" className="button">
                  To the accounts
                </Link>
              </Empty>
            )
          ) : (
            <Table
              label="Workloads"
              columns={columns}
              rows={rows}
              total={total}
              more={pages.hasNextPage && !pages.isFetchingNextPage ? () => void pages.fetchNextPage() : undefined}
              dim={pages.isPlaceholderData}
            />
          )
        }
      </Shown>
    </Page>
  );
}
