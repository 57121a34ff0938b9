// Views, kept until the world changes.
import { keepPreviousData, QueryClient, useInfiniteQuery, useQuery } from "@tanstack/react-query";
import type { InfiniteData, UseInfiniteQueryResult, UseQueryResult } from "@tanstack/react-query";
import { isPassing, type Params, view } from "./api.ts";
import type { Me } from "./views.ts";

// again is after how many milliseconds to ask again. An answer that stays away is asked for as long as somebody looks.
function again(error: unknown, every: number): number | false {
  if (isPassing(error)) return 10_000;
  return error === null && every > 0 ? every : false;
}

export const queries = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: Infinity, // events tell when to ask again
      gcTime: 5 * 60_000,
      refetchOnWindowFocus: false,
      retry: (failures, e) => failures < 3 && isPassing(e),
      retryDelay: (failures) => Math.min(8000, 500 * 2 ** failures),
      refetchInterval: (q) => again(q.state.error, 0),
    },
  },
});

type Options = { enabled?: boolean; keep?: boolean; every?: number; share?: boolean };

// useView asks for a view, and again whenever the world changes. With keep (the default) the last answer stays, as a placeholder,
// while that for other parameters is on its way. every is for what changes although the world does not, such as how often
// a rule was met: milliseconds after which it is asked for again. share false is for answers so large that to compare them with
// the last would hold the page up.
export function useView<T>(name: string, params: Params = {}, { enabled = true, keep = true, every = 0, share = true }: Options = {}): UseQueryResult<T> {
  return useQuery<T>({
    queryKey: ["view", name, params],
    queryFn: ({ signal }) => view<T>(name, params, { signal }),
    enabled,
    refetchInterval: (q) => again(q.state.error, every),
    structuralSharing: share,
    ...(keep ? { placeholderData: keepPreviousData } : {}),
  });
}

type Paged = { total: number; continue?: string };

// usePages asks for a view that is told in parts.
export function usePages<T extends Paged>(name: string, params: Params): UseInfiniteQueryResult<InfiniteData<T>> {
  return useInfiniteQuery<T, Error, InfiniteData<T>, readonly unknown[], string>({
    queryKey: ["view", name, params, "pages"],
    queryFn: ({ signal, pageParam }) => view<T>(name, { ...params, limit: 500, continue: pageParam }, { signal }),
    initialPageParam: "",
    getNextPageParam: (last) => last.continue || undefined,
    placeholderData: keepPreviousData,
    structuralSharing: false, // to compare all rows costs more than to draw the few that are seen
    refetchInterval: (q) => again(q.state.error, (q.state.data?.pages.length ?? 0) < 3 ? 30_000 : 0),
  });
}

// rowsOf are the rows of all pages. One that has moved while they were read counts where it is first.
export function rowsOf<T extends { id: string }>(pages: readonly { items: readonly T[] | null }[]): T[] {
  const seen = new Map<string, T>();
  for (const p of pages) for (const row of p.items ?? []) if (!seen.has(row.id)) seen.set(row.id, row);
  return [...seen.values()];
}

export function useMe(): Me | undefined {
  return useView<Me>("me").data;
}

// refresh asks again for every view that is shown. Requests on their way are left to end, so that a world that
// changes all the time is shown all the same.
export function refresh(): Promise<void> {
  return queries.invalidateQueries({ queryKey: ["view"] }, { cancelRefetch: false });
}
