/** Where a program's bytes come from. */

import { WebGPUError } from '../errors';
import { ChunkedSource } from './chunked';
import { ForwardFeed } from './feeds';
import { BlobSource, BytesSource } from './held';
import { Body } from './http';
import { Check, parseIntegrity } from './integrity';
import { Stop } from './stop';
import type { Source, SourceFrom, SourceOptions } from './types';
import { openUrl } from './url';

export { type CacheKind, clearCache, resolveUrl } from './store';
export type { Source, SourceFrom, SourceOptions } from './types';

/**
 * Opens a file for reading in parts.
 *
 * - A URL is fetched by ranges, or in one stream where the server knows no ranges.
 * - Of a stream, what `read` passes is kept until `finish`, at most 64 MiB; what `stream`
 *   passes is gone. Programs as they are exported, with their weights last, are read in
 *   order.
 */
export async function openSource(
  from: SourceFrom,
  options: SourceOptions = {},
): Promise<Source> {
  const { integrity, cache } = options;
  if (cache !== undefined && !['cache', 'opfs', 'none'].includes(cache)) {
    throw new WebGPUError(
      'InvalidArgument',
      `load: cache must be 'cache', 'opfs' or 'none', got '${cache}'`,
    );
  }
  const wanted = integrity === undefined ? undefined : parseIntegrity(integrity);
  options.signal?.throwIfAborted();
  if (typeof from === 'string' || from instanceof URL) {
    return openUrl(from, options, wanted);
  }
  if (from instanceof ReadableStream) {
    return openStream(from, options, wanted && new Check('stream', wanted));
  }
  const held = openHeld(from, options);
  if (wanted !== undefined) {
    await held.verify(wanted);
  }
  return held;
}

function openHeld(from: SourceFrom, options: SourceOptions): BlobSource | BytesSource {
  if (from instanceof Blob) {
    return new BlobSource(from, options);
  }
  if (ArrayBuffer.isView(from)) {
    const { buffer, byteOffset, byteLength } = from;
    return new BytesSource(new Uint8Array(buffer, byteOffset, byteLength), options);
  }
  if (Object.prototype.toString.call(from).endsWith('ArrayBuffer]')) {
    return new BytesSource(new Uint8Array(from as ArrayBuffer), options);
  }
  throw new WebGPUError(
    'InvalidArgument',
    'load: a program must be a URL, bytes, a Blob or a ReadableStream, got ' +
      `${from === null ? 'null' : typeof from}`,
  );
}

function openStream(
  from: ReadableStream<Uint8Array>,
  options: SourceOptions,
  check: Check | undefined,
): Source {
  if (from.locked) {
    throw new WebGPUError(
      'InvalidArgument',
      'load: a stream must not be in use, got a locked one',
    );
  }
  const stop = new Stop(options.signal);
  const body = new Body('stream', from, stop.signal, 0, undefined);
  const feed = new ForwardFeed('stream', body, undefined, undefined);
  // The browser aborts what it fetches; a stream of the caller's waits until it is told.
  stop.signal.addEventListener('abort', () => feed.stop());
  return new ChunkedSource({
    name: 'stream',
    feed,
    version: { size: undefined, etag: undefined, lastModified: undefined },
    store: undefined,
    isWhole: false,
    check,
    wanted: undefined,
    stop,
    onBytes: options.onBytes,
    onWarning: options.onWarning ?? ((message) => console.warn(message)),
  });
}
