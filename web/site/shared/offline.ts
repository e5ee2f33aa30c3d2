/** What is kept so that pages open without a network; the service worker reads it. */

export const KEPT = 'executorch-webgpu-pages';

/** Whether a page's file is kept: all but programs, which the player keeps and checks. */
export function isKept(address: string): boolean {
  const url = new URL(address, location.href);
  return url.origin === location.origin && !/\.(b?pte|onnx|wasm)$/.test(url.pathname);
}

/** Keeps this page: what comes past the service worker, and all else by it. */
export async function keepForOffline(): Promise<void> {
  if (!('serviceWorker' in navigator)) return;
  try {
    await navigator.serviceWorker.register('sw.js');
    await navigator.serviceWorker.ready;
    const cache = await caches.open(KEPT);
    const keep = async (url: string): Promise<void> => {
      if (!(await cache.match(url))) await cache.add(url);
    };
    await keep(location.href);
    keepPassed(keep);
  } catch (error) {
    sayWhyNot(error);
  }
}

/**
 * Keeps what was asked for before the service worker took over. It is told of when it
 * has come, which may be later than that.
 */
function keepPassed(keep: (url: string) => Promise<void>): void {
  const met = new Set<string>();
  const observer = new PerformanceObserver((list) => {
    for (const {
      name,
      workerStart,
    } of list.getEntries() as PerformanceResourceTiming[]) {
      if (workerStart > 0 || met.has(name) || !isKept(name)) continue;
      met.add(name);
      keep(name).catch(sayWhyNot);
    }
  });
  observer.observe({ type: 'resource', buffered: true });
}

/** Private windows refuse; the page works as well, online. */
function sayWhyNot(error: unknown): void {
  console.info(`offline use is not possible here: ${error}`);
}
