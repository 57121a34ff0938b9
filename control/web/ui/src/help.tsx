import { useEffect, useRef, useState } from "react";
import { Icon } from "./parts/icon.tsx";
import { places } from "./shell.tsx";
import { areKeysOn, turnKeys } from "./shortcuts.ts";

export function Help({ open, onClose }: { open: boolean; onClose: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [on, setOn] = useState(areKeysOn);
  useEffect(() => {
    if (open && !dialog.current?.open) dialog.current?.showModal();
    if (!open) dialog.current?.close();
  }, [open]);
  return (
    <dialog ref={dialog} onClose={onClose} aria-labelledby="help-title" onClick={(e) => e.target === dialog.current && onClose()}>
      <div className="dialog-box">
        <header>
          <h2 id="help-title">Keys</h2>
          <button type="button" className="plain" onClick={onClose}>
            <Icon name="close" />
            <span className="sr">Close</span>
          </button>
        </header>
        <table className="keys">
          <tbody>
            {places.map((p) => (
              <tr key={p.path}>
                <td>
                  <kbd>g</kbd> <kbd>{p.key}</kbd>
                </td>
                <td>{p.name}</td>
              </tr>
            ))}
            <tr>
              <td>
                <kbd>/</kbd>
              </td>
              <td>To the search field of the page</td>
            </tr>
            <tr>
              <td>
                <kbd>←</kbd> <kbd>↑</kbd> <kbd>→</kbd> <kbd>↓</kbd> <kbd>Enter</kbd>
              </td>
              <td>On the map and the matrix: to the next group or cell; tell of it. Shift and Enter open a group of the map</td>
            </tr>
            <tr>
              <td>
                <kbd>+</kbd> <kbd>-</kbd> <kbd>0</kbd>
              </td>
              <td>On the map: nearer, farther, all</td>
            </tr>
            <tr>
              <td>
                <kbd>Esc</kbd>
              </td>
              <td>Close what is open</td>
            </tr>
            <tr>
              <td>
                <kbd>?</kbd>
              </td>
              <td>This help</td>
            </tr>
          </tbody>
        </table>
        <label className="check">
          <input
            type="checkbox"
            checked={on}
            onChange={(e) => {
              turnKeys(e.target.checked);
              setOn(e.target.checked);
            }}
          />
          Keys of one character are on
        </label>
        <p className="quiet-text">
          Every state of a page is in its address: copy it to share what you see. <a href="/licenses.txt">Licenses</a> of what this page is made of.
        </p>
      </div>
    </dialog>
  );
}
