import { QueryClientProvider } from "@tanstack/react-query";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { queries } from "./data.ts";
import { Failure, Loading } from "./parts/states.tsx";
import { LoginPage } from "./pages/login.tsx";
import { usePath } from "./route.ts";
import { useSession } from "./session.ts";
import { Shell } from "./shell.tsx";

function App() {
  const session = useSession();
  const path = usePath();
  if (session.data === undefined) {
    return (
      <main className="page">
        {session.error ? <Failure what="The console" error={session.error} retry={() => void session.refetch()} /> : <Loading what="the console" />}
      </main>
    );
  }
  return "in" in session.data && path !== "/login" ? <Shell session={session.data.in} /> : <LoginPage state={session.data} />;
}

createRoot(document.getElementById("app")!).render(
  <StrictMode>
    <QueryClientProvider client={queries}>
      <App />
    </QueryClientProvider>
  </StrictMode>,
);
