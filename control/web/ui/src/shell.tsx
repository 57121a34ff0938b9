import { useEffect, useRef, useState } from "react";
import { Link } from "wouter";
import { onAnnounce } from "./announce.ts";
import { listen, pause, useLive } from "./events.ts";
import { Help } from "./help.tsx";
import { type Later, later } from "./later.tsx";
import { Icon } from "./parts/icon.tsx";
import { Text } from "./parts/text.tsx";
import { usePath } from "./route.ts";
import { logOut, recheck } from "./session.ts";
import { useShortcuts } from "./shortcuts.ts";
import { plain } from "./text.ts";
import { watchUse } from "./use.ts";
import { chooseTheme, type Theme, useTheme } from "./theme.ts";
import { Loading } from "./parts/states.tsx";
import { PageBoundary } from "./boundary.tsx";
import { list, type Session } from "./views.ts";

export type Place = { path: string; name: string; key: string; icon: string; page: Later<object>; detail?: Later<object> };

const waiting = (
  <div className="page">
    <Loading what="the page" />
  </div>
);

export const places: readonly Place[] = [
  { path: "/map", name: "Map", key: "m", icon: "map", page: later(() => import("./pages/map.tsx"), waiting) },
  { path: "/matrix", name: "Matrix", key: "x", icon: "matrix", page: later(() => import("./pages/matrix.tsx"), waiting) },
  { path: "/explain", name: "Explain", key: "e", icon: "explain", page: later(() => import("./pages/explain.tsx"), waiting) },
  { path: "/policies", name: "Policies", key: "p", icon: "policies", page: later(() => import("./pages/policies.tsx"), waiting), detail: later(() => import("./pages/policy.tsx"), waiting) },
  { path: "/workloads", name: "Workloads", key: "w", icon: "workloads", page: later(() => import("./pages/workloads.tsx"), waiting), detail: later(() => import("./pages/workload.tsx"), waiting) },
  { path: "/preview", name: "Preview", key: "v", icon: "preview", page: later(() => import("./pages/preview.tsx"), waiting) },
  { path: "/accounts", name: "Accounts", key: "a", icon: "accounts", page: later(() => import("./pages/accounts.tsx"), waiting) },
];

function placeOf(path: string): { place: Place; isDetail: boolean } | undefined {
  for (const place of places) {
    if (path === place.path || path === `${place.path}/`) return { place, isDetail: false };
    if (place.detail && path.startsWith(`${place.path}/`)) return { place, isDetail: true };
  }
  return path === "/" ? { place: places[0]!, isDetail: false } : undefined;
}

// The page that is asked for comes while it is asked who is logged in. What goes wrong is told when it is shown.
const first = placeOf(location.pathname);
(first?.isDetail ? first.place.detail : first?.place.page)?.load().catch(() => {});

export function Shell({ session }: { session: Session }) {
  const path = usePath();
  const [menu, setMenu] = useState(false);
  const [help, setHelp] = useState(false);
  const at = placeOf(path);
  useEffect(() => listen(() => void recheck()), []);
  useEffect(() => watchUse(() => void recheck()), []);
  useEffect(() => setMenu(false), [path]);
  useShortcuts(places, () => setHelp(true));
  const Shown = at && (at.isDetail ? at.place.detail! : at.place.page);
  return (
    <>
      <a className="skip" href="#main">
        Skip to the content
      </a>
      <header className="bar">
        <Link href="/map" className="brand" aria-label="Isobar, to the map">
          <Contours />
          <span>Isobar</span>
        </Link>
        <button type="button" className="plain only-narrow menu-button" aria-expanded={menu} aria-controls="nav" onClick={() => setMenu(!menu)}>
          <Icon name={menu ? "close" : "menu"} />
          <span>{at?.place.name ?? "Menu"}</span>
        </button>
        <nav id="nav" aria-label="Pages" className={menu ? "open" : ""} onKeyDown={(e) => e.key === "Escape" && setMenu(false)}>
          <ul>
            {places.map((p) => (
              <li key={p.path}>
                <Link href={p.path} aria-current={at?.place === p ? "page" : undefined} onClick={() => setMenu(false)}>
                  <Icon name={p.icon} />
                  {p.name}
                </Link>
              </li>
            ))}
          </ul>
        </nav>
        <div className="bar-end">
          <LiveState />
          <Settings session={session} onHelp={() => setHelp(true)} />
        </div>
      </header>
      <main id="main" tabIndex={-1}>
        <PageBoundary key={path}>
          {Shown ? <Shown key={path} /> : <NotFound />}
        </PageBoundary>
      </main>
      <Announcer />
      <Help open={help} onClose={() => setHelp(false)} />
    </>
  );
}

export function Contours() {
  return (
    <svg className="contours" viewBox="0 0 24 24" width="22" height="22" aria-hidden="true" focusable="false">
      <path d="M3 15c0-7 4-11 10-11 5 0 8 3 8 7 0 6-5 9-10 9-5 0-8-2-8-5z" />
      <path d="M7.5 14c0-4 2.5-6 5.5-6s4.5 1.5 4.5 3.5c0 3-2.5 5-5.5 5s-4.5-1-4.5-2.5z" />
      <circle cx="12.5" cy="12" r="0.8" />
    </svg>
  );
}

function NotFound() {
  return (
    <div className="page">
      <div className="empty">
        <h1 tabIndex={-1}>There is no such page</h1>
        <p>
          <Link href="/map">To the map</Link>
        </p>
      </div>
    </div>
  );
}

function LiveState() {
  const live = useLive();
  const [tone, words, title] = live.paused
    ? ["held", live.waiting ? "Paused, changes wait" : "Paused", "What is shown stays as it is. Press to go on."]
    : live.link === "live"
      ? ["live", "Live", "What is shown follows the world. Press to hold it."]
      : ["away", live.link === "connecting" ? "Connecting…" : "Reconnecting…", "What is shown may be old: there is no connection to the server."];
  return (
    <button type="button" className={`plain live-state ${tone}`} aria-pressed={live.paused} title={title} onClick={() => pause(!live.paused)}>
      <span className="dot" aria-hidden="true" />
      <span className="live-words" role="status">
        {words}
      </span>
      <Icon name={live.paused ? "play" : "pause"} className="on-hover" />
      <span className="sr">{live.paused ? "go on" : "hold"}</span>
    </button>
  );
}

function Settings({ session, onHelp }: { session: Session; onHelp: () => void }) {
  const theme = useTheme();
  const details = useRef<HTMLDetailsElement>(null);
  useEffect(() => {
    const close = (e: Event) => {
      const d = details.current;
      if (!d?.open) return;
      if (e instanceof KeyboardEvent) {
        if (e.key !== "Escape") return;
        d.querySelector("summary")?.focus();
      } else if (d.contains(e.target as Node)) return;
      d.open = false;
    };
    document.addEventListener("pointerdown", close);
    document.addEventListener("keydown", close);
    return () => {
      document.removeEventListener("pointerdown", close);
      document.removeEventListener("keydown", close);
    };
  }, []);
  return (
    <details className="menu" ref={details}>
      <summary title={plain(session.user)}>
        <Icon name="user" />
        <span className="sr">You and settings</span>
        <Icon name="down" />
      </summary>
      <div className="menu-box">
        <dl>
          {session.cluster && (
            <>
              <dt>World</dt>
              <dd>
                <Text>{session.cluster}</Text>
                {session.readOnly && <span className="quiet-text"> (read only)</span>}
              </dd>
            </>
          )}
          <dt>You</dt>
          <dd>
            <Text>{session.user}</Text>
          </dd>
          {list(session.groups).length > 0 && (
            <>
              <dt>Groups</dt>
              <dd>
                {list(session.groups).map((g) => (
                  <div key={g}>
                    <Text>{g}</Text>
                  </div>
                ))}
              </dd>
            </>
          )}
        </dl>
        <fieldset className="segments">
          <legend>Theme</legend>
          {(["auto", "light", "dark"] as const).map((t: Theme) => (
            <label key={t}>
              <input type="radio" name="theme" checked={theme === t} onChange={() => chooseTheme(t)} />
              <Icon name={t === "auto" ? "system" : t === "light" ? "sun" : "moon"} />
              {t === "auto" ? "System" : t === "light" ? "Light" : "Dark"}
            </label>
          ))}
        </fieldset>
        <button
          type="button"
          className="row"
          onClick={() => {
            if (details.current) details.current.open = false;
            onHelp();
          }}
        >
          <Icon name="help" />
          Keys and help
          <kbd>?</kbd>
        </button>
        {session.login !== "none" && (
          <button type="button" className="row" onClick={() => void logOut()}>
            <Icon name="out" />
            Log out
          </button>
        )}
      </div>
    </details>
  );
}

// Announcer is the one live region of what is told by announce.
function Announcer() {
  const [text, setText] = useState("");
  useEffect(() => onAnnounce(setText), []);
  return (
    <div className="sr" aria-live="polite" aria-atomic="true">
      {text}
    </div>
  );
}
