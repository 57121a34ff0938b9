import { Link } from "wouter";
import { useView } from "../data.ts";
import { endOf, idOf, shownOf } from "../ids.ts";
import { Phase, Verdict } from "../parts/badges.tsx";
import { Fact, Facts, Section, Sheet, Some } from "../parts/facts.tsx";
import { Page } from "../parts/page.tsx";
import { PolicyRef } from "../parts/refs.tsx";
import { Empty, Hidden, Shown } from "../parts/states.tsx";
import { Text } from "../parts/text.tsx";
import { link, usePath } from "../route.ts";
import { count, counted } from "../text.ts";
import { type EffectiveRule, list, type Workload } from "../views.ts";
import { own } from "../own.ts";
import { calledOf, kindNames, sorted } from "../words.ts";

export default function WorkloadPage() {
  const id = idOf("workloads", usePath());
  const found = useView<Workload>("workload", { id }, { enabled: id !== "", keep: false });
  const end = endOf(id) || found.data?.addresses?.[0] || "";
  return (
    <Page
      title="Workload"
      name={shownOf(id).name || "?"}
      kicker={<Link href="/workloads">Workloads</Link>}
      actions={
        end !== "" && (
          <>
            <Link className="button" href={link("/explain", { from: end })}>
              Explain from here
            </Link>
            <Link className="button" href={link("/explain", { to: end })}>
              Explain to here
            </Link>
          </>
        )
      }
    >
      {id === "" ? <Empty title="The address names no workload" /> : <Shown of={found} what="The workload">{(w) => <Detail of={w} />}</Shown>}
    </Page>
  );
}

function Detail({ of: w }: { of: Workload }) {
  const labels = sorted(w.labels);
  const policies = Array.isArray(w.policies) ? w.policies : [];
  const rules = list(w.rules);
  return (
    <>
      {w.ended && <p className="note">It has ended: no policy is enforced on it any more.</p>}
      <Facts>
        <Fact name="Kind">{own(kindNames, w.kind) ?? <Text>{w.kind}</Text>}</Fact>
        {calledOf(w.labels) && (
          <Fact name="Called">
            <Text>{calledOf(w.labels)}</Text>
          </Fact>
        )}
        {w.namespace && (
          <Fact name="Namespace">
            <Link href={link("/workloads", { namespace: w.namespace })}>
              <Text>{w.namespace}</Text>
            </Link>
          </Fact>
        )}
        <Fact name="Addresses">
          <Some of={list(w.addresses)} most={8} mono none="none" />
        </Fact>
        {w.network && (
          <Fact name="Network">
            <Text>{w.network}</Text>
          </Fact>
        )}
        <Fact name="Enforced">
          <Phase of={w.realization === "none" ? "" : w.realization} />
        </Fact>
        {w.agent && (
          <Fact name="Agent">
            <Text>{w.agent}</Text>
          </Fact>
        )}
        <Fact name="Labels">
          {labels.length === 0 ? (
            <span className="quiet-text">none</span>
          ) : (
            <ul className="chips">
              {labels.map(([k, v]) => (
                <li key={k}>
                  <Text max={60}>{k}</Text>=<Text max={60}>{v}</Text>
                </li>
              ))}
            </ul>
          )}
        </Fact>
      </Facts>
      <Rules direction="ingress" title="What may reach it" rules={rules} isolated={w.isolatedIngress} />
      <Rules direction="egress" title="What it may reach" rules={rules} isolated={w.isolatedEgress} />
      <Section title={`Policies (${count(policies.length)})`}>
        {policies.length === 0 ? (
          <p className="quiet-text">None that you may see applies to it.</p>
        ) : (
          <p className="refs">
            {policies.map((p) => (
              <PolicyRef key={p} id={p} />
            ))}
          </p>
        )}
      </Section>
      {list(w.cloudObjects).length > 0 && (
        <Section title="In the cloud" note="What it is there, and what of ours enforces policies on it.">
          <Sheet label="Cloud objects" head={["Kind", "ID", "Name", "Account", "Detail"]}>
            {list(w.cloudObjects).map((o, i) => (
              <tr key={i}>
                <td>
                  <Text>{o.kind}</Text>
                </td>
                <td className="mono">
                  <Text max={60}>{o.id}</Text>
                </td>
                <td>
                  <Text max={60}>{o.name}</Text>
                </td>
                <td>
                  <Text max={60}>{o.account}</Text>
                </td>
                <td className="wrap">
                  <Text>{o.detail}</Text>
                </td>
              </tr>
            ))}
          </Sheet>
        </Section>
      )}
      {list(w.status).length > 0 && (
        <Section title="Targets" note="Where its policies are enforced.">
          <Sheet label="Targets" head={["Target", "Phase", "Message"]}>
            {list(w.status).map((s, i) => (
              <tr key={i}>
                <td>
                  <Text max={80}>{s.target}</Text>
                </td>
                <td>
                  <Phase of={s.phase} />
                </td>
                <td className="wrap">
                  <Text>{s.message}</Text>
                </td>
              </tr>
            ))}
          </Sheet>
        </Section>
      )}
    </>
  );
}

// isIsolation says whether a rule is what a NetworkPolicy does by selecting a Pod. Its rules have no names, so none is mistaken for it.
function isIsolation(r: EffectiveRule): boolean {
  return r.tier === "@kubernetes" && r.rule === "isolation";
}

function Rules({ direction, title, rules, isolated }: { direction: "ingress" | "egress"; title: string; rules: readonly EffectiveRule[]; isolated: boolean }) {
  const mine = rules.filter((r) => r.direction === direction);
  const written = mine.filter((r) => !isIsolation(r)).length;
  const rest = isolated ? "What none of them allows is dropped." : "What none of them decides is allowed.";
  return (
    <Section title={title} note={mine.length === 0 ? undefined : `${counted(written, "rule")} in the order in which they are asked. ${rest}`}>
      {mine.length === 0 ? (
        <p className="quiet-text">{isolated ? `No rule, and it is isolated: all ${direction} is dropped.` : `No rule: all ${direction} is allowed.`}</p>
      ) : (
        <Sheet label={`Rules of ${direction}`} head={["Tier", "Priority", "Policy", "Rule", "Action", "Traffic", "Peers"]} numbers={["Priority"]}>
          {mine.map((r, i) =>
            r.hidden ? (
              <tr key={i}>
                <td colSpan={4}>
                  <Hidden>a rule that is not visible to you</Hidden>
                </td>
                <td>{r.action && <Verdict of={r.action} />}</td>
                <td>
                  <Some of={list(r.traffic)} mono none="" />
                </td>
                <td>
                  <Some of={list(r.peers)} none="" />
                </td>
              </tr>
            ) : (
              <tr key={i}>
                <td>
                  <span className="quiet-text num">{r.tierNumber}</span> <Text max={40}>{r.tier}</Text>
                </td>
                <td className="num">{r.tier === "@kubernetes" ? <span className="quiet-text">–</span> : r.priority}</td>
                <td>
                  <PolicyRef id={r.policy} max={40} />
                </td>
                <td>
                  <Text max={40}>{r.rule}</Text>
                </td>
                <td>
                  <Verdict of={r.action} />
                </td>
                <td>{isIsolation(r) ? <span className="quiet-text">all else</span> : <Some of={list(r.traffic)} mono none="none" />}</td>
                <td>{isIsolation(r) ? <span className="quiet-text">anybody</span> : <Some of={list(r.peers)} none="nobody" />}</td>
              </tr>
            ),
          )}
          {isolated && !mine.some(isIsolation) && (
            <tr>
              <td colSpan={4} className="quiet-text">
                Isolation: all else
              </td>
              <td>
                <Verdict of="Drop" />
              </td>
              <td colSpan={2} />
            </tr>
          )}
        </Sheet>
      )}
    </Section>
  );
}

