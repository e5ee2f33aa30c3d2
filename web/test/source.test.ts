import { createHash } from 'node:crypto';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { clearCache, openSource, type Source, type SourceFrom } from '../src/source';
import { CHUNK } from '../src/source/feeds';
import { FakeCaches, FakeFolder } from './fake_storage';
import { FileServer, someBytes } from './file_server';

const FILE = someBytes(3 * CHUNK + 1234);

function sri(bytes: Uint8Array, algorithm = 'sha256'): string {
  return `${algorithm}-${createHash(algorithm).update(bytes).digest('base64')}`;
}

async function collect(
  source: Source,
  start: number,
  end: number,
): Promise<Uint8Array> {
  const all = new Uint8Array(end - start);
  let at = 0;
  for await (const piece of source.stream(start, end)) {
    all.set(piece, at);
    at += piece.length;
  }
  expect(at).toBe(end - start);
  return all;
}

/** As a module reads a program: its head, then its weights, not from their start. */
async function load(source: Source): Promise<void> {
  expect(same(await source.read(0, 64), FILE.subarray(0, 64))).toBe(true);
  expect(same(await source.read(0, 5000), FILE.subarray(0, 5000))).toBe(true);
  const first = CHUNK - 100;
  expect(
    same(await source.read(first, CHUNK + 9), FILE.subarray(first, CHUNK + 9)),
  ).toBe(true);
  const start = CHUNK + 4096;
  const weights = await collect(source, start, FILE.length - 10);
  expect(same(weights, FILE.subarray(start, FILE.length - 10))).toBe(true);
  await source.finish();
}

function same(a: Uint8Array, b: Uint8Array): boolean {
  return Buffer.compare(a, b) === 0;
}

let server: FileServer;
let url: string;

beforeEach(async () => {
  server = new FileServer(FILE);
  url = await server.start();
});

afterEach(async () => {
  await server.stop();
  vi.unstubAllGlobals();
});

describe('what is here already', () => {
  const froms: [string, () => SourceFrom][] = [
    ['an ArrayBuffer', () => FILE.slice().buffer],
    ['a view', () => new Uint8Array([7, ...FILE]).subarray(1)],
    ['a Blob', () => new Blob([FILE])],
    ['a File', () => new File([FILE], 'm.pte')],
  ];
  it.each(froms)('reads %s', async (_, make) => {
    const source = await openSource(make(), { integrity: sri(FILE) });
    expect(source.size).toBe(FILE.length);
    await load(source);
  });

  it.each(froms)('refuses a range outside of %s', async (_, make) => {
    const source = await openSource(make());
    await expect(source.read(FILE.length - 1, FILE.length + 1)).rejects.toMatchObject({
      code: 'InvalidProgram',
    });
  });

  it.each(froms)('refuses %s with another digest', async (_, make) => {
    const integrity = sri(FILE.subarray(1), 'sha384');
    await expect(openSource(make(), { integrity })).rejects.toThrow(
      `must be ${integrity}, got ${sri(FILE, 'sha384')}`,
    );
  });

  it('refuses what is no source', async () => {
    await expect(openSource(7 as never)).rejects.toThrow('got number');
    await expect(openSource('x', { cache: 'disk' as never })).rejects.toThrow(
      "got 'disk'",
    );
  });
});

describe('a server with ranges', () => {
  it('is asked for the head and then for the rest, once', async () => {
    await load(await openSource(url, { cache: 'none' }));
    const end = FILE.length - 1;
    expect(server.requests).toEqual([
      `bytes=0-${CHUNK - 1}`,
      `bytes=${CHUNK}-${2 * CHUNK - 1}`,
      `bytes=${2 * CHUNK}-${end}`,
    ]);
    expect(server.sent).toBe(FILE.length);
  });

  it('tells progress up to all bytes, each once', async () => {
    const seen: number[] = [];
    const onBytes = (loaded: number, total?: number) => {
      expect(total).toBe(FILE.length);
      seen.push(loaded);
    };
    const source = await openSource(url, { cache: 'none', onBytes });
    await load(source);
    expect(seen).toEqual([CHUNK, 2 * CHUNK, 3 * CHUNK, FILE.length]);
  });

  it('reads two streams at once', async () => {
    const source = await openSource(url, { cache: 'none' });
    const [a, b] = await Promise.all([
      collect(source, 10, FILE.length),
      collect(source, CHUNK, 3 * CHUNK),
    ]);
    expect(same(a, FILE.subarray(10))).toBe(true);
    expect(same(b, FILE.subarray(CHUNK, 3 * CHUNK))).toBe(true);
  });

  it('follows redirects', async () => {
    server.faults.redirect = '/elsewhere';
    await load(await openSource(url, { cache: 'none', integrity: sri(FILE) }));
  });

  it('asks again for the rest of what breaks off', async () => {
    Object.assign(server.faults, { cutAfter: 1000, cuts: 3 });
    await load(await openSource(url, { cache: 'none', integrity: sri(FILE) }));
    expect(server.faults.cuts).toBe(0);
  });

  it('gives up if no byte comes', async () => {
    const source = await openSource(url, { cache: 'none' });
    Object.assign(server.faults, { cutAfter: 0 });
    await expect(source.read(CHUNK, CHUNK + 9)).rejects.toMatchObject({
      code: 'AccessFailed',
      message: expect.stringContaining(url),
    });
  });

  it('notices that the file changed', async () => {
    const source = await openSource(url, { cache: 'none' });
    await source.read(0, 9);
    server.faults.etag = '"2"';
    await expect(source.read(CHUNK, CHUNK + 9)).rejects.toThrow(
      'got "1", 6292690 bytes, then "2"',
    );
  });

  it('notices that the file has another size', async () => {
    const source = await openSource(url, { cache: 'none' });
    server.bytes = FILE.subarray(0, FILE.length - 1);
    await expect(source.read(CHUNK, CHUNK + 9)).rejects.toMatchObject({
      code: 'InvalidProgram',
    });
  });

  it('refuses another range than was asked for, and more bytes', async () => {
    server.faults.shift = 1;
    await expect(openSource(url, { cache: 'none' })).rejects.toThrow('got 1 to');
    server.faults.shift = 0;
    server.faults.extra = 10;
    const source = await openSource(url, { cache: 'none' });
    await expect(
      source.read(0, CHUNK).then(() => source.read(CHUNK, 2 * CHUNK)),
    ).rejects.toThrow('must come, got more');
  });

  it('refuses a range outside of the file', async () => {
    const source = await openSource(url, { cache: 'none' });
    await expect(source.read(0, FILE.length + 1)).rejects.toThrow(
      `got ${FILE.length} bytes`,
    );
  });

  it('reads after it was finished, but not after it was closed', async () => {
    const controller = new AbortController();
    const source = await openSource(url, { cache: 'none', signal: controller.signal });
    await load(source);
    controller.abort();
    expect(same(await collect(source, 5, CHUNK + 5), FILE.subarray(5, CHUNK + 5))).toBe(
      true,
    );
    await source.close();
    await expect(source.read(0, 9)).rejects.toMatchObject({ code: 'InvalidState' });
  });
});

describe.each([false, true])(
  'a server without ranges, without length: %s',
  (noLength) => {
    beforeEach(() => {
      Object.assign(server.faults, { noRange: true, noLength });
    });

    it('is read in one stream', async () => {
      const source = await openSource(url, {
        cache: 'none',
        integrity: sri(FILE, 'sha512'),
      });
      await load(source);
      expect(source.size).toBe(FILE.length);
      expect(server.requests.length).toBe(1);
    });

    it('is asked again for what has passed', async () => {
      const source = await openSource(url, { cache: 'none' });
      await collect(source, CHUNK, FILE.length);
      expect(same(await source.read(0, 9), FILE.subarray(0, 9))).toBe(true);
      expect(server.requests.length).toBe(2);
      server.faults.etag = '"2"';
      await source.finish();
      await expect(source.read(0, 9)).rejects.toThrow('must stay the same');
    });

    it('tells what breaks off', async () => {
      server.faults.cutAfter = CHUNK + 5;
      const source = await openSource(url, { cache: 'none' });
      await source.read(0, 9);
      await expect(source.read(0, 2 * CHUNK)).rejects.toMatchObject({
        code: 'AccessFailed',
        message: expect.stringContaining(`${url}: `),
      });
    });

    it('refuses a range outside of the file', async () => {
      const source = await openSource(url, { cache: 'none' });
      await expect(source.read(FILE.length - 5, FILE.length + 1)).rejects.toThrow(
        `got ${FILE.length} bytes`,
      );
    });
  },
);

describe('what is not there', () => {
  it.each([
    [404, 'NotFound'],
    [410, 'NotFound'],
    [403, 'AccessFailed'],
    [500, 'AccessFailed'],
  ])('status %i is %s', async (status, code) => {
    server.faults.status = status;
    const opening = openSource(url, { cache: 'none' });
    await expect(opening).rejects.toMatchObject({ code });
    await expect(opening).rejects.toThrow(
      `${url}: must be there, got HTTP status ${status}`,
    );
  });

  it('names a server that is not reached', async () => {
    await server.stop();
    await expect(openSource(url, { cache: 'none' })).rejects.toThrow(
      `${url}: must be reachable`,
    );
    await server.start();
  });

  it('ends with the signal', async () => {
    const controller = new AbortController();
    const { signal } = controller;
    const source = await openSource(url, { cache: 'none', signal });
    controller.abort(new Error('enough'));
    await expect(source.read(CHUNK, CHUNK + 9)).rejects.toThrow('enough');
    await expect(openSource(url, { signal })).rejects.toThrow('enough');
  });
});

describe('a stream', () => {
  const stream = () => new Blob([FILE]).stream();

  it('is read in order', async () => {
    const source = await openSource(stream(), { integrity: sri(FILE, 'sha384') });
    expect(source.size).toBe(undefined);
    await load(source);
    expect(source.size).toBe(FILE.length);
  });

  it('cannot go back behind weights', async () => {
    const source = await openSource(stream());
    await collect(source, CHUNK, 3 * CHUNK);
    await expect(source.read(0, 9)).rejects.toThrow('must be read in order');
  });

  it('ends with the signal, even while it waits', async () => {
    const controller = new AbortController();
    const endless = new ReadableStream<Uint8Array>();
    const source = await openSource(endless, { signal: controller.signal });
    const reading = source.read(0, 9);
    setTimeout(() => controller.abort(new Error('enough')), 10);
    await expect(reading).rejects.toThrow('enough');
  });

  it('must have bytes, and not be in use', async () => {
    const words = new Blob(['abc']).stream().pipeThrough(new TextDecoderStream());
    const source = await openSource(words as never);
    await expect(source.read(0, 1)).rejects.toThrow('got string');
    await expect(openSource(words as never)).rejects.toThrow('got a locked one');
  });
});

describe('integrity', () => {
  const other = sri(FILE.subarray(1));

  it('lets the strongest algorithm count, and any of its digests', async () => {
    const good = [
      `${other} ${sri(FILE, 'sha384')}`,
      `${sri(FILE)} ${other} md5-xyz`,
      `${sri(FILE)}?option`,
    ];
    for (const integrity of good) {
      await load(await openSource(url, { cache: 'none', integrity }));
    }
    const bad = `${sri(FILE)} ${sri(FILE.subarray(1), 'sha512')}`;
    const source = await openSource(url, { cache: 'none', integrity: bad });
    await expect(load(source)).rejects.toThrow(`got ${sri(FILE, 'sha512')}`);
    await expect(source.read(0, 9)).rejects.toThrow('integrity must be');
  });

  it.each(['', 'sha256-', 'md5-abc', 'sha256-AAAA', 'sha256-%%%'])(
    'refuses %j',
    async (integrity) => {
      await expect(openSource(url, { integrity })).rejects.toMatchObject({
        code: 'InvalidArgument',
      });
    },
  );

  it('notices that a server answers differently the second time', async () => {
    const integrity = sri(FILE);
    const source = await openSource(url, { cache: 'none', integrity });
    await collect(source, 0, FILE.length);
    server.bytes = FILE.slice();
    server.bytes[9] = 255 - (FILE[9] ?? 0);
    await expect(source.read(0, 20)).rejects.toThrow(
      'what is fetched twice must be the same',
    );
  });
});

describe.each(['cache', 'opfs'] as const)('kept in %s', (cache) => {
  let caches: FakeCaches;
  let root: FakeFolder;

  beforeEach(() => {
    caches = new FakeCaches();
    root = new FakeFolder();
    vi.stubGlobal('caches', caches);
    vi.stubGlobal('navigator', { storage: { getDirectory: async () => root } });
  });

  it('loads again without the server', async () => {
    await load(await openSource(url, { cache }));
    expect(server.sent).toBe(FILE.length);
    await load(await openSource(url, { cache }));
    expect(server.sent).toBe(FILE.length + 1); // whether it is still the same
    await server.stop();
    const onWarning = vi.fn();
    await load(await openSource(url, { cache, onWarning }));
    expect(onWarning).toHaveBeenCalledWith(expect.stringContaining('as it was kept'));
    await clearCache(url);
    await expect(openSource(url, { cache })).rejects.toThrow('must be reachable');
    await server.start();
  });

  it('asks nobody for what was found right', async () => {
    const integrity = sri(FILE);
    await load(await openSource(url, { cache, integrity }));
    const { length } = server.requests;
    await load(await openSource(url, { cache, integrity }));
    expect(server.requests.length).toBe(length);
    await clearCache();
    await load(await openSource(url, { cache, integrity }));
    expect(server.requests.length).toBeGreaterThan(length);
  });

  it('hashes what was kept without a digest', async () => {
    await load(await openSource(url, { cache }));
    await load(await openSource(url, { cache, integrity: sri(FILE) }));
    expect(server.sent).toBe(FILE.length + 1);
    const { length } = server.requests;
    await load(await openSource(url, { cache, integrity: sri(FILE) }));
    expect(server.requests.length).toBe(length);
  });

  it('fetches a file that changed', async () => {
    await load(await openSource(url, { cache }));
    server.faults.etag = '"2"';
    await load(await openSource(url, { cache }));
    expect(server.sent).toBe(2 * FILE.length + 1);
  });

  it('takes up a load that was broken off, and does not take it for whole', async () => {
    const first = await openSource(url, { cache });
    await collect(first, 0, 2 * CHUNK);
    await first.close();
    const before = server.sent;
    const second = await openSource(url, { cache, integrity: sri(FILE) });
    await load(second);
    expect(server.sent - before).toBeLessThan(FILE.length);
    expect(server.requests.at(-1)).toBe(`bytes=${2 * CHUNK}-${FILE.length - 1}`);
  });

  it('does not take up another version, or one that is not told apart', async () => {
    for (const etag of ['"2"', undefined]) {
      server.faults.etag = etag;
      const first = await openSource(url, { cache });
      await collect(first, 0, 2 * CHUNK);
      await first.close();
      const before = server.sent;
      server.faults.etag = etag === undefined ? undefined : '"3"';
      await load(await openSource(url, { cache, integrity: sri(FILE) }));
      expect(server.sent - before).toBe(FILE.length);
      await clearCache(url);
    }
  });

  it('keeps nothing of a file with another digest', async () => {
    const altered = FILE.slice();
    altered[CHUNK + 50] = 255 - (altered[CHUNK + 50] ?? 0);
    server.bytes = altered;
    const source = await openSource(url, { cache, integrity: sri(FILE) });
    await collect(source, 0, FILE.length);
    await expect(source.finish()).rejects.toThrow(
      `integrity must be ${sri(FILE)}, got ${sri(altered)}`,
    );
    await expect(source.read(0, 9)).rejects.toMatchObject({ code: 'InvalidProgram' });
    await server.stop();
    await expect(openSource(url, { cache })).rejects.toThrow('must be reachable');
    await server.start();
  });

  it('replaces what has another digest than is meant now', async () => {
    const old = someBytes(CHUNK + 5, 7);
    server.bytes = old;
    const first = await openSource(url, { cache, integrity: sri(old) });
    await first.finish();
    server.bytes = FILE;
    await load(await openSource(url, { cache, integrity: sri(FILE) }));
  });

  it('keeps what a server without ranges sends', async () => {
    Object.assign(server.faults, { noRange: true, noLength: true });
    await load(await openSource(url, { cache }));
    await server.stop();
    await load(await openSource(url, { cache, onWarning: () => undefined }));
    await server.start();
  });

  it('fetches a chunk that the browser threw away', async () => {
    await load(await openSource(url, { cache }));
    const places = [...caches.places.values()].map(({ entries }) => entries);
    const folder = [...root.folders.values()][0]?.folders.values().next().value;
    const entries = [...places, folder?.files].find((each) => each !== undefined);
    const name = [...(entries?.keys() ?? [])].find((key) => key.endsWith('.2'));
    entries?.delete(name ?? '');
    const before = server.sent;
    await load(await openSource(url, { cache }));
    expect(server.sent - before).toBe(2 * CHUNK); // the head, which tells the version
  });
});

describe('storage that fails', () => {
  it('goes on where there is no room, says so, and keeps nothing', async () => {
    const caches = new FakeCaches();
    vi.stubGlobal('caches', caches);
    caches.quota = 2 * CHUNK + 10;
    const onWarning = vi.fn();
    await load(await openSource(url, { integrity: sri(FILE), onWarning }));
    expect(onWarning).toHaveBeenCalledTimes(1);
    expect(onWarning).toHaveBeenCalledWith(
      expect.stringContaining('QuotaExceededError'),
    );
    expect([...caches.places.values()].every(({ entries }) => entries.size === 0)).toBe(
      true,
    );
  });

  it('goes on where the page may not use it, and says so', async () => {
    vi.stubGlobal('caches', {
      open: async () => {
        throw new DOMException('not here', 'SecurityError');
      },
    });
    const onWarning = vi.fn();
    await load(await openSource(url, { onWarning }));
    expect(onWarning).toHaveBeenCalledWith(expect.stringContaining('SecurityError'));
  });
});
