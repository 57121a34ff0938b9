// What writes would do: to access, and at the places that enforce.
import { type ReactNode, useState } from "react";
import { idOfEnd } from "../ids.ts";
import { Badge } from "../parts/badges.tsx";
import { Section, Sheet, Some } from "../parts/facts.tsx";
import { Icon } from "../parts/icon.tsx";
import { PolicyRef, WorkloadRef } from "../parts/refs.tsx";
import { Empty } from "../parts/states.tsx";
import { Text } from "../parts/text.tsx";
import { count, counted, plain } from "../text.ts";
import { list } from "../views.ts";
import { type Change, type Item, type Preview, type Problem, type Side, type TargetPlan, together } from "./answer.ts";

export function Results({ of: p }: { of: Preview }) {
  const problems = list(p.problems);
  const faults = problems.filter((x) => !x.warning);
  const changes = list(p.changes);
  return (
    <>
      {problems.length > 0 && <Problems of={problems} />}
      {faults.length > 0 ? (
        <p className="note warn">
          <Icon name="warn" />
          <span>What would change is told once all of the manifests can be read.</span>
        </p>
      ) : (
        <>
          <Section
            title="Access"
            note={
              changes.length === 0
                ? undefined
                : "A line is a group of pairs whose access changes alike: each on the left to each on the right. What changes only for workloads that you do not see is not told."
            }
          >
            {changes.length === 0 ? (
              <p>
                <Icon name="check" /> No access changes, of what you see.
              </p>
            ) : (
              <>
                <Totals of={p} />
                <Changes of={changes} />
              </>
            )}
          </Section>
          <Section title="Where it is enforced" note={p.targetsDenied ? undefined : "Writes in accounts, and what they use of quotas. Nothing is written yet."}>
            {p.targetsDenied ? (
              <p className="note">
                <span>
                  Not told: <Text>{p.targetsDenied}</Text>
                </span>
              </p>
            ) : list(p.targets).length === 0 ? (
              <p className="quiet-text">No network of an account would have something else to enforce. Nodes and VMs with an agent get what concerns them by themselves.</p>
            ) : (
              list(p.targets).map((t) => <Target key={t.name} of={t} />)
            )}
          </Section>
        </>
      )}
    </>
  );
}

export function Totals({ of: p }: { of: Preview }) {
  return (
    <p className="totals">
      <Badge tone={p.totals.gained > 0 ? "warn" : "quiet"}>+ {counted(p.totals.gained, "gained", "gained")}</Badge>
      <Badge tone={p.totals.lost > 0 ? "bad" : "quiet"}>− {counted(p.totals.lost, "lost", "lost")}</Badge>
      <Badge tone={p.totals.changed > 0 ? "info" : "quiet"}>~ {counted(p.totals.changed, "otherwise changed", "otherwise changed")}</Badge>
    </p>
  );
}

function Problems({ of }: { of: readonly Problem[] }) {
  return (
    <Section title="Problems">
      <Sheet label="Problems" head={["Kind", "Object", "Field", "What is wrong"]}>
        {of.map((p, i) => (
          <tr key={i}>
            <td>{p.warning ? <Badge tone="warn" icon="warn">warning</Badge> : <Badge tone="bad" icon="cross">error</Badge>}</td>
            <td>
              <Text max={80}>{p.object}</Text>
            </td>
            <td className="mono">
              <Text max={80}>{p.field}</Text>
            </td>
            <td className="wrap">
              <Text>{p.message}</Text>
            </td>
          </tr>
        ))}
      </Sheet>
    </Section>
  );
}

function Changes({ of }: { of: readonly Change[] }) {
  const [shown, setShown] = useState(100);
  return (
    <>
      <ul className="changes">
        {of.slice(0, shown).map((c, i) => (
          <li key={i} className="card">
            <div className="change-ends">
              <Ends of={c.from} /> <span aria-label="to">→</span> <Ends of={c.to} />
            </div>
            <ul>
              <Kind sign="+" words="gained" tone="gained" items={list(c.gained)} />
              <Kind sign="−" words="lost" tone="lost" items={list(c.lost)} />
              <Kind sign="~" words="otherwise changed" tone="changed" items={list(c.changed)} />
            </ul>
          </li>
        ))}
      </ul>
      {of.length > shown && (
        <button type="button" onClick={() => setShown(shown + 500)}>
          Show more of {count(of.length)}
        </button>
      )}
    </>
  );
}

function Kind({ sign, words, tone, items }: { sign: string; words: string; tone: string; items: readonly Item[] }) {
  return together(items).map((g) => (
    <li key={`${g.before} ${g.after}`} className={`change ${tone}`}>
      <span className="change-sign" aria-hidden="true">
        {sign}
      </span>
      <span>
        <span className="sr">{words}: </span>
        <Some of={g.traffic} most={12} mono />{" "}
        <span className="quiet-text">
          (<Text>{g.before}</Text> → <Text>{g.after}</Text>)
        </span>
      </span>
    </li>
  ));
}

function Ends({ of }: { of: Side }) {
  const [all, setAll] = useState(false);
  const workloads = list(of.workloads);
  const shown = all ? workloads : workloads.slice(0, 4);
  const prefixes = list(of.prefixes);
  const parts: ReactNode[] = shown.map((end) => <WorkloadRef key={end} id={idOfEnd(end)} max={60} />);
  return (
    <span className="ends">
      {of.added && <Badge tone="info">new</Badge>}
      {of.removed && <Badge>goes</Badge>}
      {parts}
      {workloads.length > shown.length && (
        <button type="button" className="link" onClick={() => setAll(true)}>
          and {count(workloads.length - shown.length)} more
        </button>
      )}
      {prefixes.length > 0 && (
        <span title={prefixes.slice(0, 60).map(plain).join(", ")}>
          {workloads.length > 0 && "and "}others in <Some of={prefixes} most={3} mono />
        </span>
      )}
    </span>
  );
}

function Target({ of: t }: { of: TargetPlan }) {
  const changes = list(t.changes);
  const ops = new Map<string, number>();
  for (const c of changes) ops.set(c.op, (ops.get(c.op) ?? 0) + 1);
  const refusals = list(t.refusals);
  return (
    <section className="card target">
      <header>
        <h3>
          <Text max={120}>{t.name}</Text>
        </h3>
        {t.pending && (
          <Badge tone="info" icon="dots" title="It is not yet as it should be without the writes: what it lacks is among them, too.">
            pending
          </Badge>
        )}
        {[...ops].map(([op, n]) => (
          <Badge key={op}>
            {count(n)} <Text>{op}</Text>
          </Badge>
        ))}
        {refusals.some((r) => !r.already) && (
          <Badge tone="bad" icon="warn">
            {counted(refusals.filter((r) => !r.already).length, "new refusal")}
          </Badge>
        )}
      </header>
      {t.error && (
        <p className="note warn">
          <Icon name="warn" />
          <span>
            What it would do is not known: <Text>{t.error}</Text>
          </span>
        </p>
      )}
      {list(t.usage).length > 0 && (
        <ul className="usage">
          {list(t.usage).map((u, i) => (
            <li key={i}>
              <span>
                <Text max={60}>{u.quota}</Text>
                {u.of && (
                  <span className="quiet-text">
                    {" "}
                    of <Text max={60}>{u.of}</Text>
                  </span>
                )}
              </span>
              <meter min={0} max={Math.max(1, u.limit)} high={u.limit * 0.85} optimum={0} value={u.used} />
              <span className="num">
                {count(u.used)} of {count(u.limit)}
                {u.before !== u.used && <span className="quiet-text"> (now {count(u.before)})</span>}
                {u.used > u.limit && <strong> too many</strong>}
              </span>
            </li>
          ))}
        </ul>
      )}
      {refusals.length > 0 && (
        <Sheet label={`Refusals of ${plain(t.name)}`} head={["Refused", "Why", "Since", "Workloads"]}>
          {refusals.map((r, i) => (
            <tr key={i}>
              <td>
                {r.policy ? <PolicyRef id={r.policy} /> : "all that applies"} {r.rule && <Text max={60}>{r.rule}</Text>}
              </td>
              <td className="wrap">
                <Text>{r.message || r.reason}</Text>
                {r.limit !== undefined && r.limit > 0 && (
                  <span className="quiet-text">
                    {" "}
                    {count(r.need ?? 0)} of {count(r.limit)}
                  </span>
                )}
              </td>
              <td>{r.already ? <Badge>as now</Badge> : <Badge tone="bad">new</Badge>}</td>
              <td className="wrap">
                <Some of={list(r.workloads)} />
              </td>
            </tr>
          ))}
        </Sheet>
      )}
      {changes.length > 0 && (
        <details>
          <summary>{counted(changes.length, "write")}</summary>
          <Sheet label={`Writes at ${plain(t.name)}`} head={["Write", "Object", "What changes"]}>
            {changes.map((c, i) => (
              <tr key={i}>
                <td>
                  <Text>{c.op}</Text>
                </td>
                <td className="mono">
                  <Text max={80}>{c.key}</Text>
                </td>
                <td className="wrap mono">
                  <Text>{c.text ?? ""}</Text>
                </td>
              </tr>
            ))}
          </Sheet>
        </details>
      )}
    </section>
  );
}

export function NothingYet() {
  return (
    <Empty title="Nothing is asked yet">
      <p>Paste policies, groups, tiers, namespaces or Pods as they would be, whole, and see who would gain and lose access. Nothing is written by a preview.</p>
    </Empty>
  );
}
