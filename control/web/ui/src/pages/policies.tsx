import { Page } from "../parts/page.tsx";
import { Empty } from "../parts/states.tsx";

export default function PoliciesPage() {
  return (
    <Page title="Policies">
      <Empty title="Nothing is here yet" />
    </Page>
  );
}
