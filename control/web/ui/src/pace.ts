// Paced runs work when it is asked to, one at a time. Between two runs it rests: at least rest milliseconds, and twice as long as the
// work took. What is asked for meanwhile becomes one more run.
export class Paced {
  private asked = false;
  private running = false;
  private readonly work: () => Promise<unknown>;
  private readonly rest: number;
  private readonly clock: Clock;

  constructor(work: () => Promise<unknown>, rest: number, clock: Clock = system) {
    this.work = work;
    this.rest = rest;
    this.clock = clock;
  }

  ask() {
    this.asked = true;
    if (!this.running) void this.run();
  }

  private async run() {
    this.running = true;
    while (this.asked) {
      this.asked = false;
      const start = this.clock.now();
      try {
        await this.work();
      } catch {
        // Whoever shows the data shows the error.
      }
      const took = this.clock.now() - start;
      await new Promise<void>((done) => this.clock.later(done, Math.max(this.rest, 2 * took)));
    }
    this.running = false;
  }
}

export type Clock = { now(): number; later(f: () => void, ms: number): void };

// Browsers refuse a setTimeout that is called as a method of something else, so it is called by its name.
const system: Clock = {
  now: () => performance.now(),
  later: (f, ms) => {
    setTimeout(f, ms);
  },
};
