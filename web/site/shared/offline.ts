/** What is kept so that pages open without a network; the service worker reads it. */

export const KEPT = 'executorch-webgpu-pages';

/** Whether a page's file is kept: all but programs, which the player keeps and checks. */
export function isKept(address: string): boolean {
  const url = new URL(address, location.href);
  return url.origin === location.origin && !/\.(b?pte|onnx|wasm)$/.test(url.pathname);
}

/** Keeps this page: what came before the service worker did, and from now on by it. */
export async function keepForOffline(): Promise<void> {
  if (!('serviceWorker' in navigator)) return;
  try {
    await navigator.serviceWorker.register('sw.js');
    await navigator.serviceWorker.ready;
    const cache = await caches.open(KEPT);
    const fetched = performance.getEntriesByType('resource').map(({ name }) => name);
    for (const url of [location.href, ...fetched.filter(isKept)]) {
      if (!(await cache.match(url))) await cache.add(url);
    }
  } catch (error) {
    // Private windows refuse; the page works as well, online.
    console.info(`offline use is not possible here: ${error}`);
  }
}
