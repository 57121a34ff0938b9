import { Link } from "wouter";
import { useView } from "../data.ts";
import { idOf, kindName, nameOf } from "../ids.ts";
import { Badge, Phase, Verdict } from "../parts/badges.tsx";
import { Fact, Facts, Section, Sheet, Some } from "../parts/facts.tsx";
import { Icon } from "../parts/icon.tsx";
import { Page } from "../parts/page.tsx";
import { WorkloadRef } from "../parts/refs.tsx";
import { Empty, Shown } from "../parts/states.tsx";
import { Text } from "../parts/text.tsx";
import { link, usePath } from "../route.ts";
import { bytes, count, counted } from "../text.ts";
import { type Hits, list, type Policy } from "../views.ts";

export default function PolicyPage() {
  const id = idOf("policies", usePath());
  const found = useView<Policy>("policy", { id }, { enabled: id !== "", keep: false, every: 30_000 });
  return (
    <Page title="Policy" name={nameOf(id) || "?"} kicker={<Crumbs policy={found.data} />}>
      {id === "" ? <Empty title="The address names no policy" /> : <Shown of={found} what="The policy">{(p) => <Detail of={p} />}</Shown>}
    </Page>
  );
}

function Crumbs({ policy: p }: { policy: Policy | undefined }) {
  return (
    <>
      <Link href="/policies">Policies</Link>
      {p && (
        <>
          {" › "}
          <Link href={link("/policies", { tier: p.tier })}>
            {p.tierNumber} <Text max={60}>{p.tier}</Text>
          </Link>
        </>
      )}
    </>
  );
}

function HitsText({ of }: { of: Hits | null | undefined }) {
  if (!of) return <span className="quiet-text">not counted</span>;
  if (of.sessions === 0 && of.packets === 0) return <span className="quiet-text">never</span>;
  return (
    <span className="num">
      {counted(of.sessions, "session")} <span className="quiet-text">({counted(of.packets, "packet")}, {bytes(of.bytes)})</span>
    </span>
  );
}

function Detail({ of: p }: { of: Policy }) {
  const isStaged = p.mode === "Stage";
  return (
    <>
      {isStaged && (
        <p className="note stage">
          <Badge tone="stage">Stage</Badge>
          <span>This policy is counted, and not enforced. Explain and the matrix tell what it would change.</span>
        </p>
      )}
      <Facts>
        <Fact name="Kind">
          <Text>{kindName(p.kind)}</Text>
        </Fact>
        {p.namespace && (
          <Fact name="Namespace">
            <Link href={link("/policies", { namespace: p.namespace })}>
              <Text>{p.namespace}</Text>
            </Link>
          </Fact>
        )}
        <Fact name="Tier">
          <span className="num">{p.tierNumber}</span> <Text>{p.tier}</Text>
        </Fact>
        {p.tier !== "@kubernetes" && (
          <Fact name="Priority">
            <span className="num">{p.priority}</span>
          </Fact>
        )}
        <Fact name="Enforced">
          {isStaged ? (
            <span className="quiet-text">no, staged</span>
          ) : (
            <span className="pair">
              <Phase of={p.phase ?? ""} />
              {p.desiredNodes > 0 && (
                <span className="num">
                  {count(p.currentNodes)} of {counted(p.desiredNodes, "target")}
                </span>
              )}
            </span>
          )}
        </Fact>
        <Fact name="Matched">
          <HitsText of={p.hits} />
        </Fact>
      </Facts>
      {list(p.problems).length > 0 && (
        <Section title="Problems" note="What cannot be read of an allow matches nothing, of a denial everything.">
          <ul className="stack">
            {list(p.problems).map((x, i) => (
              <li key={i} className="failure small">
                <Icon name="warn" />
                <div>
                  <code>
                    <Text>{x.field}</Text>
                  </code>
                  <p>
                    <Text>{x.message}</Text>
                  </p>
                </div>
              </li>
            ))}
          </ul>
        </Section>
      )}
      {list(p.refusals).length > 0 && (
        <Section title="Refusals" note="What a target cannot enforce exactly, and so enforces more strictly.">
          <ul className="stack">
            {list(p.refusals).map((x, i) => (
              <li key={i} className="failure small of-warn">
                <Icon name="warn" />
                <div>
                  <p>
                    <strong>
                      <Text>{x.rule || "The policy"}</Text>
                    </strong>{" "}
                    <Badge tone="warn">
                      <Text>{x.reason}</Text>
                    </Badge>
                  </p>
                  <p>
                    <Text>{x.message}</Text>
                  </p>
                  {list(x.workloads).length > 0 && (
                    <p className="refs">
                      {list(x.workloads).slice(0, 20).map((w) => (
                        <WorkloadRef key={w} id={w} />
                      ))}
                      {list(x.workloads).length > 20 && <span className="quiet-text">and {count(list(x.workloads).length - 20)} more</span>}
                    </p>
                  )}
                </div>
              </li>
            ))}
          </ul>
        </Section>
      )}
      <Section title="Rules" note={list(p.rules).length > 1 ? "In the order in which they are asked." : undefined}>
        {list(p.rules).length === 0 ? (
          <p className="quiet-text">It has no rules. Where it isolates what it applies to, nothing is allowed there by it.</p>
        ) : (
          <Sheet label="Rules" head={["#", "Rule", "Direction", "Action", "Traffic", "Peers", "Matched"]} numbers={["#"]}>
            {list(p.rules).map((r) => (
              <tr key={`${r.direction} ${r.index}`}>
                <td className="num quiet-text">{r.index}</td>
                <td>{r.name ? <Text max={60}>{r.name}</Text> : <span className="quiet-text">{`${r.direction}[${r.index}]`}</span>}</td>
                <td>{r.direction}</td>
                <td>
                  <Verdict of={r.action} />
                </td>
                <td>
                  <Some of={list(r.traffic)} mono none="none" />
                </td>
                <td>
                  <Some of={list(r.peers)} none="nobody" />
                </td>
                <td>
                  <HitsText of={r.hits} />
                </td>
              </tr>
            ))}
          </Sheet>
        )}
      </Section>
      <Section title={`Applies to ${counted(p.appliesTo.count, "workload")}`}>
        {p.appliesTo.count === 0 ? (
          <p className="quiet-text">Nobody is selected now. A selector that is never met may have a label misspelt.</p>
        ) : (
          <p className="refs">
            {list(p.appliesTo.sample).map((w) => (
              <WorkloadRef key={w} id={w} />
            ))}
            {p.appliesTo.count > list(p.appliesTo.sample).length && <span className="quiet-text">and {count(p.appliesTo.count - list(p.appliesTo.sample).length)} more</span>}
          </p>
        )}
      </Section>
      {list(p.targets).length > 0 && (
        <Section title="Targets" note="Where it is enforced.">
          <Sheet label="Targets" head={["Target", "Phase", "Message"]}>
            {list(p.targets).map((t) => (
              <tr key={t.name}>
                <td>
                  <Text max={80}>{t.name}</Text>
                </td>
                <td>
                  <Phase of={t.phase} />
                </td>
                <td className="wrap">
                  <Text>{t.message}</Text>
                </td>
              </tr>
            ))}
          </Sheet>
        </Section>
      )}
    </>
  );
}
