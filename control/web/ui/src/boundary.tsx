import { Component, type ReactNode } from "react";
import { Failure } from "./parts/states.tsx";

// PageBoundary keeps a fault of one page from taking the others along.
export class PageBoundary extends Component<{ children: ReactNode }, { error?: unknown }> {
  override state: { error?: unknown } = {};

  static getDerivedStateFromError(error: unknown) {
    return { error };
  }

  override render() {
    if (!("error" in this.state)) return this.props.children;
    return (
      <div className="page">
        <Failure what="This page" error={this.state.error} retry={() => location.reload()} />
      </div>
    );
  }
}
