/** Long loops on the page's own thread, cut into turns so that the page stays usable. */

import { turn } from '../turn';

/** Calls `body` for 0 to count - 1, and gives the turn away every few milliseconds. */
export async function inTurns(
  count: number,
  body: (index: number) => void,
  milliseconds = 12,
): Promise<void> {
  let started = performance.now();
  for (let index = 0; index < count; index++) {
    body(index);
    if (performance.now() - started > milliseconds) {
      await turn();
      started = performance.now();
    }
  }
}
