/** Puts what the bench page needs beside the site's pages: both runtimes, its frame. */

import { cp, mkdir, readFile, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { build } from 'esbuild';
import { version } from './version.mjs';

const ROOT = dirname(fileURLToPath(import.meta.url));
const OURS = 'executorch-webgpu.js';
// What a page with onnxruntime-web on WebGPU fetches.
const PEER = [
  'ort.webgpu.min.mjs',
  'ort-wasm-simd-threaded.asyncify.mjs',
  'ort-wasm-simd-threaded.asyncify.wasm',
];

/** Writes into the folder of the built site. */
export async function buildBench(out) {
  const runtimes = join(out, 'runtimes');
  await mkdir(runtimes, { recursive: true });
  const options = { bundle: true, format: 'esm', target: 'es2022', minify: true };
  await build({
    ...options,
    entryPoints: [join(ROOT, 'src', 'index.ts')],
    outfile: join(runtimes, OURS),
    logLevel: 'warning',
  });
  await build({
    ...options,
    entryPoints: [join(ROOT, 'site', 'bench', 'frame.ts')],
    outfile: join(out, 'js', 'bench_frame.js'),
    logLevel: 'warning',
  });
  const peer = join(ROOT, 'node_modules', 'onnxruntime-web');
  for (const file of PEER) await cp(join(peer, 'dist', file), join(runtimes, file));
  const about = {
    ours: { version: await version(), files: await filesOf(runtimes, [OURS]) },
    ort: { version: await versionOf(peer), files: await filesOf(runtimes, PEER) },
  };
  await writeFile(join(runtimes, 'runtimes.json'), `${JSON.stringify(about)}\n`);
}

async function versionOf(folder) {
  const text = await readFile(join(folder, 'package.json'), 'utf8');
  return JSON.parse(text).version;
}

function filesOf(folder, names) {
  return Promise.all(
    names.map(async (file) => {
      const content = await readFile(join(folder, file));
      const gzip = gzipSync(content, { level: 9 }).byteLength;
      return { file, bytes: content.byteLength, gzip };
    }),
  );
}
