// Paced runs work when it is asked to, one at a time and not sooner than rest milliseconds after the last; what is asked for
// meanwhile becomes one more run.
export class Paced {
  private asked = false;
  private running = false;
  private readonly work: () => Promise<unknown>;
  private readonly rest: number;
  private readonly later: (f: () => void, ms: number) => unknown;

  constructor(work: () => Promise<unknown>, rest: number, later: (f: () => void, ms: number) => unknown = setTimeout) {
    this.work = work;
    this.rest = rest;
    this.later = later;
  }

  ask() {
    this.asked = true;
    if (!this.running) void this.run();
  }

  private async run() {
    this.running = true;
    while (this.asked) {
      this.asked = false;
      try {
        await this.work();
      } catch {
        // Whoever shows the data shows the error.
      }
      await new Promise<void>((done) => this.later(done, this.rest));
    }
    this.running = false;
  }
}
