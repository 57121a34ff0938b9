import { Link } from "wouter";
import { useMe, useView } from "../data.ts";
import { Badge, Phase } from "../parts/badges.tsx";
import { Sheet, Section } from "../parts/facts.tsx";
import { healthOf } from "../health.ts";
import { Icon } from "../parts/icon.tsx";
import { Page } from "../parts/page.tsx";
import { Bounds, Empty, Hidden, Shown } from "../parts/states.tsx";
import { Text } from "../parts/text.tsx";
import { Ago } from "../parts/time.tsx";
import { link } from "../route.ts";
import { count, counted, plain } from "../text.ts";
import { type Account, type Accounts, type AccountTarget, list, type Loop, type Quota } from "../views.ts";
import { networkOf, providerOf } from "../words.ts";

export default function AccountsPage() {
  const me = useMe();
  const found = useView<Accounts>("accounts", {}, { every: 15_000 });
  return (
    <Page title="Accounts" kicker="Clouds, what is read there, and what is written">
      {me && !me.may.accounts ? (
        <Empty title="Accounts are not visible to you">
          <p>
            <Hidden>You may list CloudProviderAccounts in no namespace</Hidden>. The VMs of namespaces that you may see are on the <Link href="/workloads?kind=vm">list of workloads</Link>.
          </p>
        </Empty>
      ) : (
        <>
          <Bounds what="accounts" />
          <Shown of={found} what="The accounts">
            {(a) => (
              <>
                {list(a.items).length === 0 ? (
                  <Empty title="There are no cloud accounts">
                    <p>
                      A CloudProviderAccount tells of an account of AWS or a subscription of Azure. Its VMs come here once a CloudEntitySelector picks them.
                    </p>
                  </Empty>
                ) : (
                  <ul className="accounts">
                    {list(a.items).map((x) => (
                      <AccountCard key={`${x.namespace}/${x.name}`} of={x} />
                    ))}
                  </ul>
                )}
                {list(a.loops).length > 0 && <Loops of={list(a.loops)} />}
              </>
            )}
          </Shown>
        </>
      )}
    </Page>
  );
}

const healths = { good: ["check", "Healthy"], warn: ["warn", "Near a quota"], bad: ["warn", "Trouble"] } as const;

function AccountCard({ of: a }: { of: Account }) {
  const health = healthOf(a);
  const [icon, words] = healths[health];
  return (
    <li className="card account" aria-label={plain(a.name)}>
      <header>
        <h2>
          <span className="quiet-text">
            <Text max={60}>{a.namespace}</Text>/
          </span>
          <Text max={80}>{a.name}</Text>
        </h2>
        <Badge>
          <Text>{providerOf(a.provider)}</Text>
        </Badge>
        <Badge tone={health} icon={icon}>
          {words}
        </Badge>
        <Link href={link("/workloads", { kind: "vm", namespace: a.namespace })} className="account-vms num">
          {counted(a.vms, "VM")}
        </Link>
      </header>
      {a.problem && (
        <p className="note warn">
          <Icon name="warn" />
          <Text>{a.problem}</Text>
        </p>
      )}
      {list(a.regions).length > 0 && (
        <div>
          <h3>Regions</h3>
          <ul className="regions">
            {list(a.regions).map((r) => (
              <li key={r.name}>
                <Badge tone={r.error ? "bad" : "good"} icon={r.error ? "warn" : "check"}>
                  <Text max={40}>{r.name}</Text>
                </Badge>
                <span className="quiet-text">
                  read <Ago time={r.lastPoll} />
                </span>
                {r.error && (
                  <span className="region-error">
                    <Text>{r.error}</Text>
                  </span>
                )}
              </li>
            ))}
          </ul>
        </div>
      )}
      {list(a.targets).length > 0 && (
        <div>
          <h3>Networks</h3>
          <ul className="targets">
            {list(a.targets).map((t) => (
              <TargetRow key={t.name} of={t} />
            ))}
          </ul>
        </div>
      )}
    </li>
  );
}

function TargetRow({ of: t }: { of: AccountTarget }) {
  return (
    <li>
      <div className="target-head">
        <span className="target-name" title={plain(t.network || t.name)}>
          <Text max={60}>{networkOf(t.network || t.name)}</Text>
        </span>
        <Phase of={t.phase} />
        <span className="quiet-text">
          {t.lastSync ? "last synced " : ""}
          <Ago time={t.lastSync}>not synced yet</Ago>
        </span>
      </div>
      {t.error && (
        <p className="region-error">
          <Text>{t.error}</Text>
        </p>
      )}
      {list(t.quotas).length > 0 && (
        <ul className="quotas">
          {list(t.quotas).map((q) => (
            <Gauge key={q.name} of={q} />
          ))}
        </ul>
      )}
    </li>
  );
}

function Gauge({ of: q }: { of: Quota }) {
  const of = Math.max(q.of, 0);
  const isFull = of > 0 && q.used >= of;
  const near = !isFull && of > 0 && q.used >= of * 0.9;
  return (
    <li className="gauge">
      <span className="gauge-name">
        <Text max={60}>{q.name}</Text>
      </span>
      <meter min={0} max={of || 1} low={(of || 1) * 0.9} high={(of || 1) * 0.999} optimum={0} value={Math.min(q.used, of || 1)} aria-label={plain(q.name)} aria-valuetext={`${q.used} of ${q.of}`} />
      <span className={`num ${isFull ? "is-bad" : near ? "is-warn" : ""}`}>
        {count(q.used)} of {count(q.of)}
        {isFull ? ", full" : near ? ", near" : ""}
      </span>
    </li>
  );
}

function Loops({ of }: { of: readonly Loop[] }) {
  return (
    <Section title="Loops" note="What the controller does again and again.">
      <Sheet label="Loops" head={["Loop", "State", "Last done", "Error"]}>
        {of.map((l) => (
          <tr key={l.name}>
            <td>
              <Text max={80}>{l.name}</Text>
            </td>
            <td>
              {l.stuck ? (
                <Badge tone="bad" icon="warn">
                  Stuck
                </Badge>
              ) : l.error ? (
                <Badge tone="bad" icon="warn">
                  Failing
                </Badge>
              ) : l.busySince && !l.busySince.startsWith("0001-") ? (
                <Badge tone="info" icon="dots">
                  Busy
                </Badge>
              ) : (
                <Badge tone="good" icon="check">
                  At rest
                </Badge>
              )}
              {l.busySince && !l.busySince.startsWith("0001-") && (
                <span className="quiet-text">
                  {" "}
                  since <Ago time={l.busySince} />
                </span>
              )}
            </td>
            <td>
              <Ago time={l.last} />
            </td>
            <td className="wrap">
              <Text>{l.error}</Text>
            </td>
          </tr>
        ))}
      </Sheet>
    </Section>
  );
}
