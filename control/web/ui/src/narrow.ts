import { useSyncExternalStore } from "react";

const narrow = matchMedia("(max-width: 720px)");

function subscribe(f: () => void): () => void {
  narrow.addEventListener("change", f);
  return () => narrow.removeEventListener("change", f);
}

// useIsNarrow says whether there is as little room as on a phone.
export function useIsNarrow(): boolean {
  return useSyncExternalStore(subscribe, () => narrow.matches);
}
