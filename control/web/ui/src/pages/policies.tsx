import { useMemo } from "react";
import { Link } from "wouter";
import { rowsOf, useMe, usePages } from "../data.ts";
import { kindName, kinds, pathOf } from "../ids.ts";
import { Badge, Phase } from "../parts/badges.tsx";
import { ClearFilters, Filter } from "../parts/filter.tsx";
import { Page } from "../parts/page.tsx";
import { Search } from "../parts/search.tsx";
import { Bounds, Empty, Shown } from "../parts/states.tsx";
import { type Column, type Row, Table } from "../parts/table.tsx";
import { Text } from "../parts/text.tsx";
import { useQuery } from "../route.ts";
import { count, counted, plain, roughly } from "../text.ts";
import { useAnnounced } from "../useannounced.ts";
import { list, type Policies, type PolicyItem } from "../views.ts";

const params = ["search", "namespace", "tier", "kind"] as const;

const columns: readonly Column<PolicyItem>[] = [
  {
    id: "name",
    head: "Policy",
    width: "auto",
    cell: (p) => (
      <div className="cell-name">
        <Link href={pathOf("policies", p.id)} className="row-link" title={plain(p.id)}>
          {p.namespace && (
            <span className="quiet-text">
              <Text max={40}>{p.namespace}</Text>/
            </span>
          )}
          <Text max={80}>{p.name}</Text>
        </Link>
        {p.mode === "Stage" && (
          <Badge tone="stage" title="Staged: it is counted, and not enforced">
            Stage
          </Badge>
        )}
        {p.problems > 0 && (
          <Badge tone="bad" icon="warn">
            {counted(p.problems, "problem")}
          </Badge>
        )}
        {p.refusals > 0 && (
          <Badge tone="warn" icon="warn" title="Some target cannot enforce it exactly, and is stricter">
            {counted(p.refusals, "refusal")}
          </Badge>
        )}
      </div>
    ),
  },
  { id: "kind", head: "Kind", width: "212px", minor: true, cell: (p) => <span className="quiet-text">{<Text>{kindName(p.kind)}</Text>}</span> },
  { id: "priority", head: "Priority", width: "72px", isNumber: true, cell: (p) => (p.tier === "@kubernetes" ? <span className="quiet-text">–</span> : p.priority) },
  { id: "rules", head: "Rules", width: "64px", isNumber: true, cell: (p) => count(p.rules) },
  { id: "appliesTo", head: "Applies to", width: "90px", isNumber: true, cell: (p) => (p.appliesTo === 0 ? <span className="quiet-text">nobody</span> : count(p.appliesTo)) },
  {
    id: "phase",
    head: "Enforced",
    width: "178px",
    cell: (p) => (
      <span className="pair">
        {p.mode === "Stage" ? <span className="quiet-text">not enforced</span> : <Phase of={p.phase ?? ""} />}
        {p.mode !== "Stage" && p.desiredNodes > 0 && (
          <span className="quiet-text num" title={`${p.currentNodes} of ${p.desiredNodes} targets`}>
            {count(p.currentNodes)}/{count(p.desiredNodes)}
          </span>
        )}
      </span>
    ),
  },
  {
    id: "hits",
    head: "Sessions",
    width: "84px",
    isNumber: true,
    cell: (p) =>
      p.hits === null || p.hits === undefined ? (
        <span className="quiet-text" title="Nobody counts them">
          –
        </span>
      ) : p.hits.sessions === 0 ? (
        <span className="quiet-text">never</span>
      ) : (
        <span title={`${count(p.hits.sessions)} sessions`}>{roughly(p.hits.sessions)}</span>
      ),
  },
];

export default function PoliciesPage() {
  const query = useQuery();
  const me = useMe();
  const pages = usePages<Policies>("policies", Object.fromEntries(params.map((p) => [p, query.get(p)])));
  const first = pages.data?.pages[0];
  const rows = useMemo(() => {
    const out: Row<PolicyItem>[] = [];
    let tier: number | undefined;
    for (const p of rowsOf<PolicyItem>(pages.data?.pages ?? [])) {
      if (p.tierNumber !== tier) {
        tier = p.tierNumber;
        out.push({
          key: `tier/${out.length}`,
          heading: (
            <>
              <span className="tier-number">{tier}</span> <Text max={60}>{p.tier}</Text>
              <span className="quiet-text tier-note">{tierNote(p.tier)}</span>
            </>
          ),
        });
      }
      out.push({ key: p.id, item: p });
    }
    return out;
  }, [pages.data]);
  const total = first?.total ?? 0;
  const isFiltered = params.some((p) => query.get(p) !== "");
  useAnnounced(first && !pages.isPlaceholderData ? counted(total, "policy", "policies") : "");
  return (
    <Page title="Policies" kicker="In the order in which they are asked">
      <Bounds what="policies" />
      <div className="filters" role="search">
        <Search label="Search policies" placeholder="Name or namespace" />
        <Filter label="Tier" param="tier" options={list(first?.tiers).map((t) => [t.name, `${t.number} ${t.name}`] as const)} />
        <Filter label="Kind" param="kind" options={Object.entries(kinds)} />
        <Filter label="Namespace" param="namespace" options={list(me?.namespaces).map((n) => [n, n] as const)} />
        <ClearFilters params={params} />
        <span className="filters-count quiet-text num">{first ? counted(total, "policy", "policies") : ""}</span>
      </div>
      <Shown of={{ ...pages, data: pages.data }} what="The policies" rows={14}>
        {() =>
          total === 0 ? (
            isFiltered ? (
              <Empty title="No policy is like that">
                <p>None that you may see has all of what you asked for.</p>
                <ClearFilters params={params} />
              </Empty>
            ) : (
              <Empty title="There are no policies">
                <p>Without any, everybody may reach everybody. Write a first one on the Preview page, where you see what it would change before it does.</p>
                <Link href="/preview" className="button">
                  To the preview
                </Link>
              </Empty>
            )
          ) : (
            <Table
              label="Policies in order of evaluation"
              columns={columns}
              rows={rows}
              total={total + rows.length - rows.filter((r) => "item" in r).length}
              more={pages.hasNextPage && !pages.isFetchingNextPage ? () => void pages.fetchNextPage() : undefined}
              dim={pages.isPlaceholderData}
            />
          )
        }
      </Shown>
    </Page>
  );
}

// tierNote says what is particular about a tier.
function tierNote(tier: string): string {
  switch (tier) {
    case "@kubernetes":
      return "has no order: what any allows is allowed, what they select is isolated";
    case "@admin":
      return "ClusterNetworkPolicy, before those of namespaces";
    case "@adminnetworkpolicy":
      return "AdminNetworkPolicy";
    case "@baselineadmin":
      return "asked last";
    case "baseline":
      return "asked where nothing before has decided";
  }
  return "";
}
