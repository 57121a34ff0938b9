// Where one is: the path and the query of the address, read as they stand there, so that every state of a page is a link.
import { useCallback, useMemo } from "react";
import { navigate, useLocationProperty } from "wouter/use-browser-location";
import { changed } from "./query.ts";

export { navigate };

// usePath is the path, still escaped.
export function usePath(): string {
  return useLocationProperty(() => location.pathname);
}

export type Query = {
  get(name: string): string;
  all(name: string): readonly string[]; // the same list for as long as the query is the same
  // set changes parameters and keeps the others; "" takes one out. It replaces the entry of the history unless told to add one.
  set(change: Record<string, string | readonly string[]>, options?: { add?: boolean }): void;
};

export function useQuery(): Query {
  const search = useLocationProperty(() => location.search);
  const set = useCallback<Query["set"]>((change, options) => {
    const to = location.pathname + changed(location.search, change);
    if (to !== location.pathname + location.search) navigate(to, { replace: !options?.add });
  }, []);
  return useMemo(() => {
    const params = new URLSearchParams(search);
    const lists = new Map<string, string[]>();
    const all = (name: string) => {
      let l = lists.get(name);
      if (l === undefined) lists.set(name, (l = params.getAll(name)));
      return l;
    };
    return { get: (name) => params.get(name) ?? "", all, set };
  }, [search, set]);
}

// link is an address of the console.
export function link(path: string, query: Record<string, string | readonly string[]> = {}): string {
  return path + changed("", query);
}
