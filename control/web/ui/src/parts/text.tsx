import { memo, type ReactNode } from "react";
import { plain, shortened, visible } from "../text.ts";

type Props = {
  children: string;
  // max shortens what is longer, in its middle; the whole is in the title.
  max?: number;
  className?: string;
};

// Text shows what others wrote: names, labels, messages. Nothing of that is shown but by it.
export const Text = memo(function Text({ children, max, className }: Props): ReactNode {
  const shown = max === undefined ? children : shortened(children, max);
  return (
    <bdi className={className} {...(shown === children ? {} : { title: plain(children) })}>
      {visible(shown).map((part, i) =>
        typeof part === "string" ? (
          part
        ) : (
          <span key={i} className="sign" title={part.title}>
            {part.sign}
          </span>
        ),
      )}
    </bdi>
  );
});
