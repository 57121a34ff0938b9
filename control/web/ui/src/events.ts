// What the server tells by itself: that the world has changed, and that the session has ended.
import { useSyncExternalStore } from "react";
import { refresh } from "./data.ts";
import { Paced } from "./pace.ts";
import { revisionOf } from "./revision.ts";

export type Link = "connecting" | "live" | "reconnecting";
export type Live = { link: Link; paused: boolean; waiting: boolean; changed: number }; // waiting: the world has changed since it was paused

let state: Live = { link: "connecting", paused: false, waiting: false, changed: 0 };
const listeners = new Set<() => void>();

function set(change: Partial<Live>) {
  state = { ...state, ...change };
  listeners.forEach((f) => f());
}

export function useLive(): Live {
  return useSyncExternalStore(
    (f) => {
      listeners.add(f);
      return () => listeners.delete(f);
    },
    () => state,
  );
}

const paced = new Paced(refresh, 1000);

// pause holds what is shown as it is, until it is told not to.
export function pause(paused: boolean) {
  const waiting = state.waiting;
  set({ paused, waiting: false });
  if (!paused && waiting) paced.ask();
}

// listen keeps a stream of events open, while the page can be seen, until the returned function is called. ended is called when the
// session has ended, or may have.
//
// A page that cannot be seen has none: a browser opens no more than six connections to one server by HTTP/1.1, of all its pages together.
export function listen(ended: () => void): () => void {
  let source: EventSource | undefined;
  let timer: ReturnType<typeof setTimeout> | undefined;
  let failures = 0;
  let revision: string | undefined;

  function close() {
    source?.close();
    source = undefined;
    clearTimeout(timer);
  }

  function open() {
    close();
    source = new EventSource("/api/events");
    source.addEventListener("revision", (e) => {
      failures = 0;
      const now = revisionOf(e.data);
      if (now === undefined) return;
      set({ link: "live" });
      if (now === revision) return;
      const isFirst = revision === undefined;
      revision = now;
      if (isFirst) return;
      set({ changed: Date.now() });
      if (state.paused) set({ waiting: true });
      else paced.ask();
    });
    source.addEventListener("ended", () => {
      close();
      ended();
    });
    source.onerror = () => {
      // The browser would try again by itself only after some faults, and at its own pace.
      close();
      set({ link: revision === undefined ? "connecting" : "reconnecting" });
      if (++failures % 3 === 0) ended();
      timer = setTimeout(open, Math.min(15_000, 500 * 2 ** failures));
    };
  }

  function see() {
    if (document.hidden) close();
    else if (source === undefined) open();
  }
  see();
  document.addEventListener("visibilitychange", see);
  return () => {
    document.removeEventListener("visibilitychange", see);
    close();
    set({ link: "connecting" });
  };
}
