import { Page } from "../parts/page.tsx";
import { Empty } from "../parts/states.tsx";

export default function AccountsPage() {
  return (
    <Page title="Accounts">
      <Empty title="Nothing is here yet" />
    </Page>
  );
}
