// nextOf is where one is led after the login: where one was going. Only paths of this console count.
export function nextOf(asked: string): string {
  const here = "http://here.invalid";
  if (!asked.startsWith("/") || !URL.canParse(asked, here)) return "/map";
  const u = new URL(asked, here);
  if (u.origin !== here || u.pathname.startsWith("//") || /^\/(login|api)(\/|$)/.test(u.pathname)) return "/map";
  return u.pathname + u.search;
}
