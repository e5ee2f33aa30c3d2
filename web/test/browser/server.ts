/** A small static server, with ranges, for tests in a browser. */

import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { extname, join, normalize } from 'node:path';

const TYPES: Record<string, string> = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript',
  '.mjs': 'text/javascript',
  '.css': 'text/css',
  '.json': 'application/json',
  '.svg': 'image/svg+xml',
  '.wasm': 'application/wasm',
  '.png': 'image/png',
  '.jpg': 'image/jpeg',
  '.wav': 'audio/wav',
};

export interface Server {
  url: string;
  /** Paths that were asked for, with their ranges. */
  asked: string[];
  close(): Promise<void>;
}

/** The first and the last byte that were asked for, and the one behind it. */
function rangeOf(request: IncomingMessage, size: number): [number, number] | undefined {
  const found = /^bytes=(\d*)-(\d*)$/.exec(request.headers.range ?? '');
  if (found === null) {
    return undefined;
  }
  const [, first = '', last = ''] = found;
  return first === ''
    ? [Math.max(0, size - Number(last)), size]
    : [Number(first), last === '' ? size : Math.min(Number(last) + 1, size)];
}

/**
 * @param folders - Folders by the beginnings of paths, such as `/dist/`; the longest that
 * fits is taken.
 */
export async function startServer(folders: Record<string, string>): Promise<Server> {
  const asked: string[] = [];
  const prefixes = Object.keys(folders).sort((a, b) => b.length - a.length);

  async function answer(request: IncomingMessage, response: ServerResponse) {
    const path = decodeURIComponent(new URL(request.url ?? '/', 'http://any').pathname);
    asked.push(`${path} ${request.headers.range ?? ''}`.trim());
    if (path === '/favicon.ico') {
      response.writeHead(204).end();
      return;
    }
    const prefix = prefixes.find((each) => path.startsWith(each));
    const rest = normalize(path.slice(prefix?.length ?? 0) || 'index.html');
    if (prefix === undefined || rest.startsWith('..')) {
      response.writeHead(404).end();
      return;
    }
    const file = join(folders[prefix] ?? '', rest);
    const found = await stat(file).catch(() => undefined);
    if (!found?.isFile()) {
      response.writeHead(404).end();
      return;
    }
    const range = rangeOf(request, found.size);
    const [first, end] = range ?? [0, found.size];
    response.writeHead(range === undefined ? 200 : 206, {
      'content-type': TYPES[extname(file)] ?? 'application/octet-stream',
      'content-length': Math.max(0, end - first),
      'accept-ranges': 'bytes',
      'last-modified': found.mtime.toUTCString(),
      etag: `"${found.size}-${Math.floor(found.mtimeMs)}"`,
      ...(range && { 'content-range': `bytes ${first}-${end - 1}/${found.size}` }),
    });
    if (request.method === 'HEAD' || end <= first) {
      response.end();
    } else {
      createReadStream(file, { start: first, end: end - 1 }).pipe(response);
    }
  }

  const server = createServer((request, response) => {
    answer(request, response).catch((error) => response.destroy(error));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}`,
    asked,
    close: async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
