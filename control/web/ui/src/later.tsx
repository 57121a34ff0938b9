// Components whose code is loaded when it is needed.
import { type ComponentType, type ReactNode, useEffect, useState } from "react";

export type Later<P> = ComponentType<P> & { load: () => Promise<unknown> };

// later is React's lazy without Suspense, which keeps what has come for 300 ms lest the page flicker: it is shown at once. A fault is
// thrown to the boundary around it, and the next try loads again.
export function later<P extends object>(load: () => Promise<{ default: ComponentType<P> }>, waiting: ReactNode): Later<P> {
  let found: ComponentType<P> | undefined;
  let asked: Promise<unknown> | undefined;
  const get = () =>
    (asked ??= load().then(
      (m) => {
        found = m.default;
      },
      (e: unknown) => {
        asked = undefined;
        throw e;
      },
    ));
  function Later(props: P) {
    const [state, setState] = useState<{ fault?: unknown }>({});
    useEffect(() => {
      if (found) return;
      let isGone = false;
      get().then(
        () => isGone || setState({}),
        (fault: unknown) => isGone || setState({ fault }),
      );
      return () => {
        isGone = true;
      };
    }, []);
    if ("fault" in state) throw state.fault;
    const Found = found;
    return Found ? <Found {...props} /> : waiting;
  }
  return Object.assign(Later, { load: get });
}
