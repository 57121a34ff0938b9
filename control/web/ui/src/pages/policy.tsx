import { Page } from "../parts/page.tsx";
import { Empty } from "../parts/states.tsx";

export default function PolicyPage() {
  return (
    <Page title="Policy">
      <Empty title="Nothing is here yet" />
    </Page>
  );
}
