/**
 * Builds the package: dist/executorch-webgpu.js and, beside it, what pages need for text,
 * sound and pictures, each an ES module with its source map; types by tsc.
 */

import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { readdir, readFile, rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { build } from 'esbuild';

const ROOT = dirname(fileURLToPath(import.meta.url));
const DIST = join(ROOT, 'dist');
// Bytes of the runtime, compressed.
const MOST = 40 * 1024;

const ENTRIES = {
  'executorch-webgpu': 'src/index.ts',
  text: 'src/text/index.ts',
  audio: 'src/audio/index.ts',
  image: 'src/image/index.ts',
  worker: 'src/worker/worker.ts',
};

// What the others take from the runtime.
const RUNTIME = new Set(
  ['index', 'module', 'tensor', 'errors'].map((name) => join(ROOT, 'src', name)),
);

async function clean() {
  // The gallery and its models are built by themselves.
  const kept = new Set(['site', 'models']);
  for (const name of existsSync(DIST) ? await readdir(DIST) : []) {
    if (!kept.has(name)) {
      await rm(join(DIST, name), { recursive: true });
    }
  }
}

/** Bundles all entries; what several need is a file of its own. */
async function bundle(entryPoints, options) {
  await build({
    absWorkingDir: ROOT,
    entryPoints,
    outdir: DIST,
    bundle: true,
    format: 'esm',
    target: 'es2022',
    minify: true,
    sourcemap: true,
    logLevel: 'warning',
    ...options,
  });
}

await clean();
// The runtime is one file; what else there is takes it from there.
await bundle({ 'executorch-webgpu': ENTRIES['executorch-webgpu'] });
const { 'executorch-webgpu': _, ...rooms } = ENTRIES;
await bundle(rooms, {
  splitting: true,
  chunkNames: 'shared-[hash]',
  plugins: [
    {
      name: 'the-runtime-is-one',
      setup(plugin) {
        // Two copies of `Tensor` would not know each other.
        plugin.onResolve({ filter: /^\./ }, ({ path, resolveDir }) =>
          RUNTIME.has(join(resolveDir, path))
            ? { path: './executorch-webgpu.js', external: true }
            : undefined,
        );
      },
    },
  ],
});
execFileSync(
  process.execPath,
  [join(ROOT, 'node_modules', 'typescript', 'bin', 'tsc'), '-p', 'tsconfig.build.json'],
  { cwd: ROOT, stdio: 'inherit' },
);
const size = gzipSync(await readFile(join(DIST, 'executorch-webgpu.js')), {
  level: 9,
}).byteLength;
console.log(`dist/executorch-webgpu.js: ${size} bytes compressed`);
if (size > MOST) {
  throw new Error(
    `the runtime must have at most ${MOST} bytes compressed, got ${size}`,
  );
}
