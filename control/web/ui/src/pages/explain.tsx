import { type FormEvent, type ReactNode, useEffect, useId, useState } from "react";
import { useView } from "../data.ts";
import { policyOf } from "../ids.ts";
import { own } from "../own.ts";
import { Badge, Verdict } from "../parts/badges.tsx";
import { EndField } from "../parts/endfield.tsx";
import { Icon } from "../parts/icon.tsx";
import { Page } from "../parts/page.tsx";
import { PolicyRef, WorkloadRef } from "../parts/refs.tsx";
import { Empty, Hidden, Shown } from "../parts/states.tsx";
import { Text } from "../parts/text.tsx";
import { useQuery } from "../route.ts";
import { byTier } from "../steps.ts";
import { counted, plain } from "../text.ts";
import { commandOf, faultOf, parseTraffic, type Protocol, protocols, writeTraffic } from "../traffic.ts";
import { useAnnounced } from "../useannounced.ts";
import { type Decision, type End, type Explained, list, type Staged, type Step, type Walk } from "../views.ts";

export default function ExplainPage() {
  const query = useQuery();
  const [from, to, port] = [query.get("from"), query.get("to"), query.get("port")];
  const isAsked = from !== "" && to !== "" && port !== "";
  const all = query.get("all") === "true";
  const found = useView<Explained>("explain", { from, to, port, toName: query.get("toName"), all }, { enabled: isAsked });
  const e = found.data;
  useAnnounced(e && !found.isPlaceholderData ? `${plain(e.from.asked)} to ${plain(e.to.asked)}, ${e.traffic}: ${e.verdict}` : "");
  return (
    <Page title="Explain" kicker="What happens to one flow, and why">
      <Ask from={from} to={to} port={port} />
      {isAsked ? (
        <Shown of={found} what="The answer" rows={8}>
          {(e) => <Answer of={e} dim={found.isPlaceholderData} />}
        </Shown>
      ) : (
        <Empty title="Ask about one flow">
          <p>Say who, whom and by what. You see the verdict at both ends, every rule that had a say, and what would happen without the one that decided.</p>
        </Empty>
      )}
    </Page>
  );
}

// Ask is the question, which becomes the address when it is sent.
function Ask(given: { from: string; to: string; port: string }) {
  const query = useQuery();
  const id = useId();
  const [from, setFrom] = useState(given.from);
  const [to, setTo] = useState(given.to);
  const [traffic, setTraffic] = useState(() => parseTraffic(given.port));
  const [fault, setFault] = useState("");
  // An address that changes by itself, by a link or by going back, fills the fields anew.
  useEffect(() => {
    setFrom(given.from);
    setTo(given.to);
    if (given.port !== "") setTraffic(parseTraffic(given.port));
    setFault("");
  }, [given.from, given.to, given.port]);
  const ask = (e: FormEvent) => {
    e.preventDefault();
    const wrong = from.trim() === "" ? "Say from whom." : to.trim() === "" ? "Say to whom." : faultOf(traffic);
    setFault(wrong);
    if (wrong === "") query.set({ from: from.trim(), to: to.trim(), port: writeTraffic(traffic), toName: "" }, { add: true });
  };
  const isICMP = traffic.protocol === "ICMP";
  return (
    <form className="ask card" onSubmit={ask} role="search" aria-label="Flow">
      <EndField label="From" value={from} onChange={setFrom} isSearch />
      <button
        type="button"
        className="plain swap"
        title="Swap both ends"
        onClick={() => {
          setFrom(to);
          setTo(from);
        }}
      >
        <Icon name="swap" />
        <span className="sr">Swap both ends</span>
      </button>
      <EndField label="To" value={to} onChange={setTo} />
      <div className="field">
        <label htmlFor={`${id}-protocol`}>Protocol</label>
        <select id={`${id}-protocol`} value={traffic.protocol} onChange={(e) => setTraffic({ ...traffic, protocol: e.target.value as Protocol })}>
          {protocols.map((p) => (
            <option key={p}>{p}</option>
          ))}
        </select>
      </div>
      <div className="field port">
        <label htmlFor={`${id}-port`}>{isICMP ? "Type/code" : "Port"}</label>
        <input
          id={`${id}-port`}
          type="text"
          inputMode={isICMP ? "text" : "numeric"}
          maxLength={9}
          autoComplete="off"
          disabled={traffic.protocol === "IGMP"}
          placeholder={isICMP ? "any" : "443"}
          value={traffic.protocol === "IGMP" ? "" : traffic.rest}
          onChange={(e) => setTraffic({ ...traffic, rest: e.target.value })}
          aria-invalid={fault !== "" && fault === faultOf(traffic)}
          aria-describedby={`${id}-fault`}
        />
      </div>
      <button type="submit" className="primary">
        Explain
      </button>
      <p id={`${id}-fault`} role="alert" className="field-error ask-fault">
        {fault}
      </p>
    </form>
  );
}

function Answer({ of: e, dim }: { of: Explained; dim: boolean }) {
  const command = commandOf(e.from.asked, e.to.asked, e.traffic, e.toName);
  return (
    <div className={dim ? "answer dim" : "answer"} aria-busy={dim}>
      <section className="card verdict" aria-label="Verdict">
        <div className="verdict-line">
          <Verdict of={e.verdict} big />
          <h2>
            <Text max={80}>{e.from.asked}</Text> <Icon name="arrow" />
            <span className="sr">to</span> <Text max={80}>{e.to.asked}</Text> <span className="mono traffic">{<Text>{e.traffic}</Text>}</span>
          </h2>
        </div>
        {list(e.needs).length > 0 && (
          <p className="verdict-note">
            <Icon name="warn" /> It depends on what the question does not tell: {needsOf(list(e.needs))}. This is the strictest answer.
          </p>
        )}
        {(e.toName || list(e.needs).includes("dns")) && <NameField name={e.toName ?? ""} />}
        <div className="strip" aria-hidden="true">
          <EndBox end={e.from} />
          <span className={`wire ${e.egress.verdict === "Allow" ? "good" : "bad"}`}>
            <span>egress</span>
            <Verdict of={e.egress.verdict} />
          </span>
          <span className={`wire ${e.egress.verdict !== "Allow" ? "cut" : e.ingress.verdict === "Allow" ? "good" : "bad"}`}>
            <span>ingress</span>
            <Verdict of={e.ingress.verdict} />
          </span>
          <EndBox end={e.to} />
        </div>
        {e.staged && <StagedNote of={e.staged} verdict={e.verdict} />}
      </section>
      <div className="walks">
        <WalkCard title="Egress" end={e.from} walk={e.egress} />
        <WalkCard title="Ingress" end={e.to} walk={e.ingress} />
      </div>
      {command && (
        <p className="command-line quiet-text">
          The same in a terminal: <code>{command}</code>
        </p>
      )}
    </div>
  );
}

// NameField tells by which DNS name the destination was found.
function NameField({ name }: { name: string }) {
  const query = useQuery();
  const id = useId();
  const [text, setText] = useState(name);
  useEffect(() => setText(name), [name]);
  const ask = (e: FormEvent) => {
    e.preventDefault();
    query.set({ toName: text.trim() }, { add: true });
  };
  return (
    <form className="name-field" onSubmit={ask}>
      <label htmlFor={id}>It was found by the DNS name</label>
      <input id={id} type="text" value={text} onChange={(e) => setText(e.target.value)} autoComplete="off" autoCapitalize="none" spellCheck={false} maxLength={253} placeholder="api.example.com" />
      <button type="submit">Ask again</button>
    </form>
  );
}

const needNames: Record<string, string> = {
  dns: "the DNS name by which it was found",
  payload: "what the packets carry",
  address: "which of a workload's addresses is meant",
  "service endpoint": "which workload the service's address leads to",
  "source port": "the source port",
};

export function needsOf(needs: readonly string[]): string {
  return needs.map((n) => own(needNames, n) ?? plain(n)).join(", ");
}

function EndBox({ end }: { end: End }) {
  return (
    <span className="end">
      <Text max={48}>{end.asked}</Text>
      {end.address !== end.asked && (
        <span className="quiet-text mono">
          <Text>{end.address}</Text>
        </span>
      )}
    </span>
  );
}

function StagedNote({ of, verdict }: { of: Staged; verdict: string }) {
  return (
    <p className="staged-note">
      <Badge tone="stage">Stage</Badge>
      <span>
        If staged policies were enforced it would be <Verdict of={of.verdict} />
        {of.verdict === verdict ? ", by another decision" : ""}
        {of.egress && (
          <>
            ; egress {of.egress.verdict} <By of={of.egress} />
          </>
        )}
        {of.ingress && (
          <>
            ; ingress {of.ingress.verdict} <By of={of.ingress} />
          </>
        )}
        .
        {list(of.by).length > 0 && (
          <>
            {" "}
            That is due to{" "}
            {list(of.by).map((id, i) => (
              <span key={id}>
                {i > 0 && ", "}
                <PolicyRef id={id} />
              </span>
            ))}
            .
          </>
        )}
      </span>
    </p>
  );
}

// By says what decided.
export function By({ of: d }: { of: Decision }): ReactNode {
  if (d.hidden) return d.reason === "rule" || d.reason === "isolation" ? <Hidden>by a policy that is not visible to you</Hidden> : <Hidden>why is not visible to you</Hidden>;
  switch (d.reason) {
    case "rule":
      return (
        <>
          by <PolicyRef id={policyOf(d)} />
          {d.rule && (
            <>
              , rule <Text max={64}>{d.rule}</Text>
            </>
          )}
        </>
      );
    case "isolation":
      return (
        <>
          by isolation: <PolicyRef id={policyOf(d)} /> selects it, and nothing allows
        </>
      );
    case "vm isolation":
      return "by the VM's isolation: some rule applies to it, and none decides";
    case "default":
      return "by default: no rule decides";
    case "not enforced":
      return "as no policy can apply to this end";
    case "to itself":
      return "as both ends are one workload";
    case "refused by the target":
      return "as the target cannot express it, and is stricter";
  }
  return <Text>{d.reason}</Text>;
}

function WalkCard({ title, end, walk }: { title: string; end: End; walk: Walk }) {
  const query = useQuery();
  const tiers = byTier(list(walk.steps));
  return (
    <section className="card walk" aria-label={`${title} at ${plain(end.asked)}`}>
      <header>
        <h2>
          {title} at <Text max={48}>{end.asked}</Text>
        </h2>
        <p>
          <Verdict of={walk.verdict} />{" "}
          <span>
            <By of={walk} />
          </span>
        </p>
        {walk.subject && walk.subject !== end.workload && (
          <p className="quiet-text">
            It is on the network of <WorkloadRef id={walk.subject} />, whose policies apply.
          </p>
        )}
        {walk.sourcePort ? <p className="quiet-text">The source port is not told: this is the answer for {walk.sourcePort}, the strictest.</p> : null}
        {list(walk.ties).length > 0 && (
          <p className="quiet-text">
            A tie: {list(walk.ties).map((t, i) => (
              <span key={t}>
                {i > 0 && ", "}
                <PolicyRef id={t} />
              </span>
            ))}{" "}
            would decide otherwise, with the same place in the order. The stricter action wins.
          </p>
        )}
      </header>
      {tiers.length === 0 ? (
        <p className="walk-none quiet-text">{walk.hidden ? "What is asked here is not visible to you." : "No rule has a say here."}</p>
      ) : (
        <ol className="tiers">
          {tiers.map((t, i) => (
            <li key={i}>
              <h3>
                {t.hidden ? (
                  <Hidden>in a tier that is not visible to you</Hidden>
                ) : (
                  <>
                    <span className="tier-number">{t.number}</span> <Text max={60}>{t.name}</Text>
                  </>
                )}
              </h3>
              <ol>
                {t.steps.map((s, j) => (
                  <StepRow key={j} of={s} />
                ))}
              </ol>
            </li>
          ))}
        </ol>
      )}
      <footer>
        {walk.without && (
          <p className="without">
            <span className="label">Without it</span> <Verdict of={walk.without.verdict} />{" "}
            <span>
              <By of={walk.without} />
            </span>
          </p>
        )}
        {walk.others > 0 && walk.listed == null && (
          <p className="quiet-text">
            {counted(walk.others, "other rule")} {walk.others === 1 ? "has" : "have"} no say here.{" "}
            <button type="button" className="link" onClick={() => query.set({ all: "true" })}>
              List them
            </button>
          </p>
        )}
        {walk.listed != null && <Listed steps={walk.listed} />}
      </footer>
    </section>
  );
}

function Listed({ steps }: { steps: readonly Step[] }) {
  const query = useQuery();
  const [shown, setShown] = useState(100);
  useEffect(() => setShown(100), [steps]);
  return (
    <details open className="listed">
      <summary>{counted(steps.length, "rule")} without a say here</summary>
      <ol>
        {steps.slice(0, shown).map((s, i) => (
          <StepRow key={i} of={s} />
        ))}
      </ol>
      <p className="pair">
        {steps.length > shown && (
          <button type="button" onClick={() => setShown(shown + 500)}>
            Show {Math.min(500, steps.length - shown)} more
          </button>
        )}
        <button type="button" className="link" onClick={() => query.set({ all: "" })}>
          Leave them out
        </button>
      </p>
    </details>
  );
}

const outcomes: Record<string, [tone: string, icon: string]> = {
  decided: ["", "check"],
  passed: ["info", "pass"],
  tied: ["warn", "warn"],
  "not matched": ["quiet", "dash"],
  "assumed not to match": ["warn", "warn"],
  skipped: ["quiet", "pass"],
  "not reached": ["quiet", "dots"],
  "not applied": ["quiet", "dash"],
};

function StepRow({ of: s }: { of: Step }) {
  const [tone, icon] = own(outcomes, s.outcome) ?? ["quiet", "dash"];
  const isDecided = s.outcome === "decided";
  return (
    <li className={`step ${isDecided ? `decided ${s.action === "Allow" ? "good" : "bad"}` : tone}`}>
      <span className="step-mark">
        <Icon name={isDecided && s.action !== "Allow" ? "cross" : icon} />
      </span>
      <div>
        <p className="step-rule">
          {s.hidden ? (
            <Hidden>a rule that is not visible to you</Hidden>
          ) : (
            <>
              <PolicyRef id={s.policy} max={48} />
              <span className="quiet-text">
                <Text max={48}>{s.rule}</Text>
              </span>
              {s.tier !== "@kubernetes" && <span className="quiet-text num">priority {s.priority}</span>}
            </>
          )}
          <span className="step-action">{s.action}</span>
        </p>
        <p className="step-outcome">
          <Outcome of={s} />
        </p>
      </div>
    </li>
  );
}

const misses: Record<string, string> = {
  protocol: "another protocol",
  port: "another port",
  "port name": "the destination declares no port by that name",
  "source port": "another source port",
  peer: "another peer",
  "dns name": "another DNS name",
  "no traffic": "it names no traffic that can be read",
  "no peers": "it names no peers that can be read",
  "applied to": "it applies to others",
  direction: "it is of the other direction",
  tier: "its tier is missing, so what it would allow does not count",
};

function Outcome({ of: s }: { of: Step }) {
  const why = s.why ? (own(misses, s.why) ?? plain(s.why)) : "";
  const wants = list(s.wants);
  const wanted = wants.length > 0 && (
    <>
      ; it is of{" "}
      {wants.slice(0, 6).map((w, i) => (
        <span key={i}>
          {i > 0 && ", "}
          <code>
            <Text max={80}>{w}</Text>
          </code>
        </span>
      ))}
      {wants.length > 6 && ` and ${wants.length - 6} more`}
    </>
  );
  const needs = s.needs ? ` (unknown: ${own(needNames, s.needs) ?? plain(s.needs)})` : "";
  switch (s.outcome) {
    case "decided":
      return <>Decides{needs}</>;
    case "passed":
      return <>Matches, and leaves it to a later tier{needs}</>;
    case "tied":
      return <>Matches, says otherwise, and has the same place in the order: the stricter action won{needs}</>;
    case "not matched":
      return (
        <>
          Does not match: {why}
          {wanted}
        </>
      );
    case "assumed not to match":
      return <>May match; that it does not is the stricter answer{needs}</>;
    case "skipped":
      return <>Skipped: a Pass led past it</>;
    case "not reached":
      return (
        <>
          Not reached{why && <>; it would not match either: {why}</>}
          {wanted}
        </>
      );
    case "not applied":
      return (
        <>
          No say: {why}
          {wanted}
        </>
      );
  }
  return (
    <>
      <Text>{s.outcome}</Text> {why}
      {wanted}
    </>
  );
}
