import { Page } from "../parts/page.tsx";
import { Empty } from "../parts/states.tsx";

export default function WorkloadsPage() {
  return (
    <Page title="Workloads">
      <Empty title="Nothing is here yet" />
    </Page>
  );
}
