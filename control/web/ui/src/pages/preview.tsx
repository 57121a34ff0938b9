import { Page } from "../parts/page.tsx";
import { Empty } from "../parts/states.tsx";

export default function PreviewPage() {
  return (
    <Page title="Preview">
      <Empty title="Nothing is here yet" />
    </Page>
  );
}
