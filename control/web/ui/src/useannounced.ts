import { useEffect, useRef } from "react";
import { announce } from "./announce.ts";

// useAnnounced tells a text whenever it has changed, but not the first, which comes with its page.
export function useAnnounced(text: string) {
  const last = useRef("");
  useEffect(() => {
    if (text === "" || text === last.current) return;
    if (last.current !== "") announce(text);
    last.current = text;
  }, [text]);
}
