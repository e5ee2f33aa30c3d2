/** A turn of the event loop, in which the page does what it has to. */

type Scheduler = { yield?: () => Promise<void> };

let waiting: (() => void)[] = [];
let channel: MessageChannel | undefined;

/**
 * Resolves in a later task. Not by a timer: browsers let nested and hidden ones wait.
 */
export function turn(): Promise<void> {
  const { scheduler } = globalThis as { scheduler?: Scheduler };
  if (scheduler?.yield !== undefined) {
    return scheduler.yield();
  }
  if (channel === undefined) {
    channel = new MessageChannel();
    channel.port1.onmessage = () => {
      const all = waiting;
      waiting = [];
      for (const resolve of all) {
        resolve();
      }
    };
    // Node would wait for messages for ever.
    (channel.port1 as { unref?: () => void }).unref?.();
  }
  const { port2 } = channel;
  return new Promise((resolve) => {
    waiting.push(resolve);
    port2.postMessage(0);
  });
}
