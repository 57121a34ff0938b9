// Keys. Single characters can be turned off, for those whose speech or hands press them unasked.
import { useEffect } from "react";
import { navigate } from "./route.ts";

const key = "isobar-keys";

export function areKeysOn(): boolean {
  try {
    return localStorage.getItem(key) !== "off";
  } catch {
    return true;
  }
}

export function turnKeys(on: boolean) {
  try {
    if (on) localStorage.removeItem(key);
    else localStorage.setItem(key, "off");
  } catch {
    // Without storage they stay as they are.
  }
}

function isTyping(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (target.isContentEditable || target.matches("input:not([type=radio]):not([type=checkbox]), textarea, select"));
}

export function useShortcuts(places: readonly { path: string; key: string }[], help: () => void) {
  useEffect(() => {
    let going: ReturnType<typeof setTimeout> | undefined; // "g" was pressed
    const stop = () => {
      clearTimeout(going);
      going = undefined;
    };
    const press = (e: KeyboardEvent) => {
      if (e.defaultPrevented || e.ctrlKey || e.metaKey || e.altKey || isTyping(e.target) || !areKeysOn() || document.querySelector("dialog[open]")) return;
      if (going !== undefined) {
        stop();
        const place = places.find((p) => p.key === e.key);
        if (place) {
          e.preventDefault();
          navigate(place.path);
        }
        return;
      }
      if (e.key === "g") going = setTimeout(stop, 1500);
      else if (e.key === "/") {
        const field = document.querySelector<HTMLElement>("main [data-search]");
        if (!field) return;
        e.preventDefault();
        field.focus();
      } else if (e.key === "?") {
        e.preventDefault();
        help();
      }
    };
    document.addEventListener("keydown", press);
    return () => {
      stop();
      document.removeEventListener("keydown", press);
    };
  }, [places, help]);
}
