// Views, kept until the world changes.
import { keepPreviousData, QueryClient, useInfiniteQuery, useQuery } from "@tanstack/react-query";
import type { InfiniteData, UseInfiniteQueryResult, UseQueryResult } from "@tanstack/react-query";
import { isPassing, type Params, view } from "./api.ts";
import type { Me } from "./views.ts";

export const queries = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: Infinity, // events tell when to ask again
      gcTime: 5 * 60_000,
      refetchOnWindowFocus: false,
      retry: (failures, e) => failures < 3 && isPassing(e),
      retryDelay: (failures) => Math.min(8000, 500 * 2 ** failures),
      // An answer that stays away is asked for again, as long as somebody looks.
      refetchInterval: (q) => (isPassing(q.state.error) ? 10_000 : false),
    },
  },
});

type Options = { enabled?: boolean; keep?: boolean };

// useView asks for a view, and again whenever the world changes. With keep (the default) the last answer stays, as a placeholder,
// while that for other parameters is on its way.
export function useView<T>(name: string, params: Params = {}, { enabled = true, keep = true }: Options = {}): UseQueryResult<T> {
  return useQuery<T>({
    queryKey: ["view", name, params],
    queryFn: ({ signal }) => view<T>(name, params, { signal }),
    enabled,
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
  });
}

export function useMe(): Me | undefined {
  return useView<Me>("me").data;
}

// refresh asks again for every view that is shown. Requests on their way are left to end, so that a world that
// changes all the time is shown all the same.
export function refresh(): Promise<void> {
  return queries.invalidateQueries({ queryKey: ["view"] }, { cancelRefetch: false });
}
