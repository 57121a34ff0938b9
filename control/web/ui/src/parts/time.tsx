import { useSyncExternalStore } from "react";
import { ago } from "../text.ts";

let now = Date.now();
const listeners = new Set<() => void>();
let timer: ReturnType<typeof setInterval> | undefined;

function subscribe(f: () => void): () => void {
  listeners.add(f);
  timer ??= setInterval(() => {
    now = Date.now();
    listeners.forEach((g) => g());
  }, 5000);
  return () => {
    listeners.delete(f);
    if (listeners.size === 0) {
      clearInterval(timer);
      timer = undefined;
    }
  };
}

// Ago says how long ago a time was; children stand for no time.
export function Ago({ time, children = "never" }: { time: string | undefined; children?: string }) {
  const shown = ago(time, useSyncExternalStore(subscribe, () => now));
  if (shown === "") return <span className="quiet-text">{children}</span>;
  return (
    <time dateTime={time} title={new Date(time!).toLocaleString()} className="num">
      {shown}
    </time>
  );
}
