import { Page } from "../parts/page.tsx";
import { Empty } from "../parts/states.tsx";

export default function MapPage() {
  return (
    <Page title="Map">
      <Empty title="Nothing is here yet" />
    </Page>
  );
}
