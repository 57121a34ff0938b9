// Whether somebody uses the page. What it asks by itself does not keep a session from being idle; what its user does, does.

const recent = 60_000;
const keep = 5 * 60_000;

// Use keeps account of when the page was used, and when the server was asked.
export class Use {
  private used: number;
  private last: number;

  constructor(now: number) {
    this.used = now;
    this.last = now;
  }

  asked(now: number) {
    this.last = now;
  }

  isUsed(now: number): boolean {
    return now - this.used < recent;
  }

  // use is called when something was pressed or turned. It says whether the server should hear of it: where it was not asked for long.
  use(now: number): boolean {
    this.used = now;
    if (now - this.last < keep) return false;
    this.last = now;
    return true;
  }
}

const page = new Use(Date.now());

export function asked() {
  page.asked(Date.now());
}

export function isUsed(): boolean {
  return page.isUsed(Date.now());
}

// watchUse calls tell when the server should hear that the page is used, until the returned function is called.
export function watchUse(tell: () => void): () => void {
  const events = ["pointerdown", "keydown", "wheel", "touchmove"] as const;
  const use = () => {
    if (page.use(Date.now())) tell();
  };
  for (const e of events) window.addEventListener(e, use, { passive: true });
  return () => {
    for (const e of events) window.removeEventListener(e, use);
  };
}
