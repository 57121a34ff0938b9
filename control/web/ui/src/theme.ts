// Light or dark: as the system says, unless the reader has chosen.
import { useSyncExternalStore } from "react";

export type Theme = "auto" | "light" | "dark";
const key = "isobar-theme";
const listeners = new Set<() => void>();

export function chosenTheme(): Theme {
  const t = document.documentElement.dataset.theme;
  return t === "light" || t === "dark" ? t : "auto";
}

export function chooseTheme(theme: Theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  try {
    if (theme === "auto") localStorage.removeItem(key);
    else localStorage.setItem(key, theme);
  } catch {
    // Without storage the choice lasts as long as the page.
  }
  listeners.forEach((f) => f());
}

const system = matchMedia("(prefers-color-scheme: dark)");

function subscribe(f: () => void): () => void {
  listeners.add(f);
  system.addEventListener("change", f);
  return () => {
    listeners.delete(f);
    system.removeEventListener("change", f);
  };
}

export function useTheme(): Theme {
  return useSyncExternalStore(subscribe, chosenTheme);
}

// useIsDark says what is shown now, for what is drawn without CSS.
export function useIsDark(): boolean {
  return useSyncExternalStore(subscribe, () => {
    const t = chosenTheme();
    return t === "auto" ? system.matches : t === "dark";
  });
}

// colour is the value, as rgb() or rgba(), that a custom property of a colour has now, for what is drawn without CSS.
export function colour(name: `--${string}`): string {
  const probe = document.createElement("span");
  probe.style.color = `var(${name})`;
  probe.hidden = true;
  document.body.append(probe);
  const value = getComputedStyle(probe).color;
  probe.remove();
  return value;
}
