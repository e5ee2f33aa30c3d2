/**
 * Keeps the pages and the small files of models, so that they open without a network.
 * The network goes first: what is kept is for when it fails. Programs are not kept here
 * but by the player, which checks them.
 */

import { isKept, KEPT } from './shared/offline';

interface FetchEvent extends Event {
  request: Request;
  respondWith(response: Promise<Response>): void;
  waitUntil(work: Promise<unknown>): void;
}

interface Scope {
  skipWaiting(): Promise<void>;
  clients: { claim(): Promise<void> };
  addEventListener(type: string, listener: (event: FetchEvent) => void): void;
}

const scope = globalThis as unknown as Scope;

scope.addEventListener('install', (event) => event.waitUntil(scope.skipWaiting()));
scope.addEventListener('activate', (event) => event.waitUntil(scope.clients.claim()));
scope.addEventListener('fetch', (event) => {
  const { request } = event;
  if (
    request.method !== 'GET' ||
    request.headers.has('range') ||
    !isKept(request.url)
  ) {
    return;
  }
  event.respondWith(networkFirst(event));
});

async function networkFirst({ request }: FetchEvent): Promise<Response> {
  try {
    const response = await fetch(request);
    if (response.ok) {
      // Behind the page's back: it does not wait, and works without a copy.
      keep(request, response.clone()).catch((error: unknown) => {
        console.info(`${request.url} is not kept for offline use: ${error}`);
      });
    }
    return response;
  } catch (error) {
    const options = { cacheName: KEPT, ignoreSearch: true };
    const kept = await caches.match(request, options);
    if (kept) return kept;
    throw error;
  }
}

/** Where there is no room, even opening a cache fails. */
async function keep(request: Request, response: Response): Promise<void> {
  const cache = await caches.open(KEPT);
  await cache.put(request, response);
}
