import { memo, type ReactNode } from "react";
import { plain, shortened, visible } from "../text.ts";

type Props = {
  children: string | undefined;
  // max shortens what is longer, in its middle; the whole is in the title.
  max?: number;
  className?: string;
};

// Text shows what others wrote: names, labels, messages. Nothing of that is shown but by it.
export const Text = memo(function Text({ children, max, className }: Props): ReactNode {
  const whole = children ?? "";
  const shown = max === undefined ? whole : shortened(whole, max);
  return (
    <bdi className={className} {...(shown === whole ? {} : { title: plain(whole) })}>
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
