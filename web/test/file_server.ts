/** A server of one file, with the faults that tests ask for. */

import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

export interface ServerFaults {
  /** Answers with the whole file whatever is asked for. */
  noRange?: boolean;
  /** Does not say how long the whole is. */
  noLength?: boolean;
  /** Answers with this status. */
  status?: number;
  /** Sends so many bytes of each answer and then breaks the connection. */
  cutAfter?: number;
  /** Does so for the first answers only. */
  cuts?: number;
  /** Sends so many bytes more than it says. */
  extra?: number;
  etag?: string | undefined;
  /** Says that it sends another range. */
  shift?: number;
  redirect?: string;
  /** Milliseconds between pieces of 256 KiB. */
  slow?: number;
  /** Lets pages of other origins see no headers but those that they always may. */
  hidden?: boolean;
}

const PIECE = 256 << 10;

export class FileServer {
  readonly faults: ServerFaults = { etag: '"1"' };
  readonly requests: string[] = [];
  sent = 0;
  readonly #server = createServer((request, response) =>
    this.#answer(request, response),
  );

  constructor(public bytes: Uint8Array) {}

  async start(): Promise<string> {
    await new Promise<void>((resolve) => this.#server.listen(0, '127.0.0.1', resolve));
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}/m.pte`;
  }

  async stop(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  #answer(request: IncomingMessage, response: ServerResponse): void {
    const { faults, bytes } = this;
    response.setHeader('Access-Control-Allow-Origin', '*');
    if (request.method === 'OPTIONS') {
      response.writeHead(204, { 'Access-Control-Allow-Headers': 'Range' }).end();
      return;
    }
    if (!faults.hidden) {
      response.setHeader('Access-Control-Expose-Headers', 'Content-Range, ETag');
    }
    const range = /bytes=(\d+)-(\d+)/.exec(request.headers.range ?? '');
    this.requests.push(request.headers.range ?? 'whole');
    if (faults.redirect !== undefined && request.url === '/m.pte') {
      response.writeHead(302, { Location: faults.redirect }).end();
      return;
    }
    if (faults.status !== undefined) {
      response.writeHead(faults.status).end('no');
      return;
    }
    const headers: Record<string, string> = {};
    if (faults.etag !== undefined) {
      headers.ETag = faults.etag;
    }
    let body = bytes;
    let status = 200;
    if (range !== null && !faults.noRange) {
      const start = Number(range[1]);
      const end = Math.min(Number(range[2]) + 1, bytes.length);
      if (start >= bytes.length) {
        response.writeHead(416, { 'Content-Range': `bytes */${bytes.length}` }).end();
        return;
      }
      const first = start + (faults.shift ?? 0);
      headers['Content-Range'] = `bytes ${first}-${end - 1}/${bytes.length}`;
      body = bytes.subarray(start, end);
      status = 206;
    }
    const isCut = faults.cutAfter !== undefined && (faults.cuts ?? Infinity) > 0;
    if (!faults.noLength && faults.extra === undefined) {
      headers['Content-Length'] = String(body.length);
    }
    response.writeHead(status, headers);
    if (isCut) {
      faults.cuts = (faults.cuts ?? Infinity) - 1;
      const part = body.subarray(0, faults.cutAfter);
      this.sent += part.length;
      response.write(part, () => response.destroy());
      return;
    }
    if (faults.slow !== undefined) {
      void this.#sendSlowly(response, body, faults.slow);
      return;
    }
    this.sent += body.length;
    response.write(body);
    response.end(new Uint8Array(faults.extra ?? 0));
  }

  async #sendSlowly(
    response: ServerResponse,
    body: Uint8Array,
    pause: number,
  ): Promise<void> {
    for (let at = 0; at < body.length && !response.destroyed; at += PIECE) {
      const part = body.subarray(at, at + PIECE);
      this.sent += part.length;
      await new Promise((resolve) => response.write(part, resolve));
      await new Promise((resolve) => setTimeout(resolve, pause));
    }
    response.end();
  }
}

/** Bytes that no two places of have the same neighbours, nearly. */
export function someBytes(size: number, seed = 1): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(size);
  let state = seed;
  for (let i = 0; i < size; i++) {
    state = (Math.imul(state, 1664525) + 1013904223) | 0;
    bytes[i] = state >>> 24;
  }
  return bytes;
}
