/**
 * Runs the bench page headless and writes its results:
 *
 *   node bench.mjs OUT.json [--rounds N] [--sizes small|full] [--cases a,b] [--gallery DIR]
 *
 * The models must be exported with --onnx. Each has a browser of its own, so that none
 * meets what another left in memory or in the driver's cache.
 */

import { createReadStream } from 'node:fs';
import { mkdir, stat, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { dirname, extname, join, normalize } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { chromium } from 'playwright-core';
import { buildSite } from './build_site.mjs';

const ROOT = dirname(fileURLToPath(import.meta.url));
const ALL =
  'classify,cutout,enlarge,search,pitch,story-prompt,story-token,chat-token'.split(',');
const TYPES = {
  '.html': 'text/html',
  '.js': 'text/javascript',
  '.mjs': 'text/javascript',
  '.css': 'text/css',
  '.json': 'application/json',
  '.svg': 'image/svg+xml',
  '.wasm': 'application/wasm',
};
// SwiftShader, and a heap that is told by the byte.
const FLAGS = [
  '--no-sandbox',
  '--enable-unsafe-webgpu',
  '--use-webgpu-adapter=swiftshader',
  '--enable-precise-memory-info',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
  '--no-first-run',
  '--disable-quic',
];

/** Serves the site, and the models at /models/; gives its address. */
async function serve(site, gallery) {
  const server = createServer(async (request, response) => {
    const path = normalize(new URL(request.url, 'http://localhost').pathname);
    const file = path.startsWith('/models/')
      ? join(gallery, path.slice('/models/'.length))
      : join(site, path);
    try {
      const { size } = await stat(file);
      const type = TYPES[extname(file)] ?? 'application/octet-stream';
      response.writeHead(200, { 'content-type': type, 'content-length': size });
      createReadStream(file).pipe(response);
    } catch {
      response.writeHead(404).end(`no ${path}`);
    }
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  return { server, address: `http://127.0.0.1:${server.address().port}` };
}

/** One model in a fresh page; gives what the page would let a visitor save. */
async function measure(browser, address, name, { rounds, sizes }) {
  const page = await browser.newPage();
  page.on('pageerror', (error) => console.error(`${name}: ${error}`));
  const asked = new URLSearchParams({ models: name, rounds, ...(sizes && { sizes }) });
  await page.goto(`${address}/bench.html?${asked}`);
  await page.click('#run:enabled');
  await page.waitForFunction(
    'window.benchResults || !document.getElementById("error").hidden',
    undefined,
    { timeout: 3_600_000, polling: 500 },
  );
  const results = await page.evaluate('window.benchResults');
  if (!results) throw new Error(`${name}: ${await page.textContent('#error')}`);
  await page.close();
  return results;
}

function describe({ title, difference, engines }) {
  const parts = Object.entries(engines).map(([name, engine]) => {
    if (engine.failed !== undefined) return `${name} failed: ${engine.failed}`;
    const sorted = [...engine.samples].sort((a, b) => a - b);
    const middle = sorted[Math.floor(sorted.length / 2)];
    return `${name} ${middle?.toFixed(0)} ms, first ${engine.firstMs.toFixed(0)} ms`;
  });
  return `${title}: ${parts.join('; ')}; difference ${difference}`;
}

async function main() {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      rounds: { type: 'string', default: '5' },
      sizes: { type: 'string' },
      cases: { type: 'string', default: ALL.join(',') },
      gallery: { type: 'string', default: join(ROOT, '..', 'build', 'gallery') },
      chromium: { type: 'string', default: '/usr/bin/chromium' },
    },
  });
  const [out] = positionals;
  if (!out) throw new Error('bench: a file for the results must be named, got none');
  const site = await buildSite(join(ROOT, '..', 'build', 'web', 'bench-site'));
  const { server, address } = await serve(site, values.gallery);
  let all;
  try {
    for (const name of values.cases.split(',')) {
      const browser = await chromium.launch({
        executablePath: values.chromium,
        args: FLAGS,
      });
      try {
        const results = await measure(browser, address, name, values);
        for (const result of results.cases) console.log(describe(result));
        if (all) all.cases.push(...results.cases);
        else all = results;
      } finally {
        await browser.close();
      }
      await mkdir(dirname(out), { recursive: true });
      await writeFile(out, `${JSON.stringify(all, undefined, 1)}\n`);
    }
  } finally {
    server.close();
  }
}

await main();
