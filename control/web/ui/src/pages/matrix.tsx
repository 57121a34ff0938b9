import { Page } from "../parts/page.tsx";
import { Empty } from "../parts/states.tsx";

export default function MatrixPage() {
  return (
    <Page title="Matrix">
      <Empty title="Nothing is here yet" />
    </Page>
  );
}
