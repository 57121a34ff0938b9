import { Page } from "../parts/page.tsx";
import { Empty } from "../parts/states.tsx";

export default function ExplainPage() {
  return (
    <Page title="Explain">
      <Empty title="Nothing is here yet" />
    </Page>
  );
}
