import { Page } from "../parts/page.tsx";
import { Empty } from "../parts/states.tsx";

export default function WorkloadPage() {
  return (
    <Page title="Workload">
      <Empty title="Nothing is here yet" />
    </Page>
  );
}
