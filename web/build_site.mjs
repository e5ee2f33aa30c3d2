/**
 * Builds the gallery: site/ to dist/site/ or the folder that is named, plain HTML with one
 * script for each page: node build_site.mjs [FOLDER] [--no-bench]
 */

import { cp, mkdir, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { build } from 'esbuild';
import { buildBench } from './build_bench.mjs';

const ROOT = dirname(fileURLToPath(import.meta.url));
const SITE = join(ROOT, 'site');
const EXPORTERS = join(ROOT, '..', 'examples', 'gallery');
// Pages without a model; those of the gallery are in pages.json.
const OTHERS = {
  index: {
    title: 'PyTorch models in a page',
    lead: 'Pictures, sound and text, by models that run on your own GPU. No server computes anything.',
  },
  program: {
    title: 'Run your own program',
    lead: 'Any .pte that was exported for WebGPU: give it inputs, run it, look at what comes out.',
    icon: "<path d='M13.5 3H7a2 2 0 0 0-2 2v14a2 2 0 0 0 2 2h10a2 2 0 0 0 2-2V8.5zM13.5 3v5.5H19'/><path d='M10.2 12v5l4-2.5z'/>",
  },
};

const BENCH = {
  bench: {
    title: 'How fast is it here?',
    lead: 'This player beside onnxruntime-web, with the same models, on your own GPU.',
  },
};

/**
 * Writes the site; gives its folder. Without the bench page it has no onnxruntime-web,
 * which is most of its size.
 */
export async function buildSite(out = join(ROOT, 'dist', 'site'), withBench = true) {
  // All at once: somebody may be looking at it.
  const scratch = `${out}.${process.pid}`;
  await rm(scratch, { recursive: true, force: true });
  await fillSite(scratch, withBench ? BENCH : {});
  await rm(out, { recursive: true, force: true });
  await rename(scratch, out);
  return out;
}

async function fillSite(out, bench) {
  const gallery = JSON.parse(await readFile(join(SITE, 'pages.json'), 'utf8'));
  const pages = { ...gallery, ...OTHERS, ...bench };
  await mkdir(join(out, 'source'), { recursive: true });
  const entries = Object.keys(pages).map((name) => [
    `js/${name}`,
    join(SITE, 'pages', `${name}.ts`),
  ]);
  const options = {
    outdir: out,
    chunkNames: 'js/shared-[hash]',
    bundle: true,
    format: 'esm',
    target: 'es2022',
    minify: true,
    sourcemap: true,
    logLevel: 'warning',
  };
  const entryPoints = Object.fromEntries(entries);
  await build({ ...options, entryPoints, splitting: true });
  // The service worker is one script, and stands at the top: it serves what is below it.
  await build({ ...options, entryPoints: { sw: join(SITE, 'sw.ts') } });
  const files = await partials();
  const shared = { root: '', nobench: bench.bench ? '' : ' hidden' };
  for (const [name, page] of Object.entries(pages)) {
    const text = await readFile(join(SITE, 'pages', `${name}.html`), 'utf8');
    const script = `<script type="module" src="js/${name}.js"></script>`;
    const body = fill(include(text, files), {
      cards: cards({ ...gallery, program: OTHERS.program }),
    });
    await writePage(join(out, `${name}.html`), { ...shared, ...page, script, body });
  }
  for (const name of Object.keys(gallery)) {
    const code = await readFile(join(EXPORTERS, `${name}.py`), 'utf8');
    await writePage(join(out, 'source', `${name}.html`), {
      ...shared,
      title: `examples/gallery/${name}.py`,
      lead: 'The Python that exported the model.',
      root: '../',
      script: '',
      body: `<pre tabindex="0"><code>${escaped(code)}</code></pre>`,
    });
  }
  if (bench.bench) await buildBench(out);
  for (const file of ['style.css', 'icon.svg'])
    await cp(join(SITE, file), join(out, file));
}

async function partials() {
  const names = await readdir(join(SITE, 'partials'));
  const texts = names.map((name) => readFile(join(SITE, 'partials', name), 'utf8'));
  const found = await Promise.all(texts);
  return new Map(names.map((name, index) => [basename(name, '.html'), found[index]]));
}

/** Puts a partial in place of `{{> name}}`; what follows the name is its `{{name}}`. */
function include(text, files) {
  return text.replace(/\{\{> (\w+) ?(.*?)\}\}/g, (_, name, value) => {
    const partial = files.get(name);
    if (partial === undefined) throw new Error(`site: partials must have ${name}.html`);
    return fill(partial.trim(), { [name]: value });
  });
}

async function writePage(path, values) {
  const layout = await readFile(join(SITE, 'layout.html'), 'utf8');
  await writeFile(path, fill(layout, values));
}

function fill(text, values) {
  return text.replace(/\{\{(\w+)\}\}/g, (whole, name) => values[name] ?? whole);
}

function cards(gallery) {
  return Object.entries(gallery)
    .map(
      ([name, { title, lead, icon }]) =>
        `<li><a href="${name}.html"><svg aria-hidden="true" viewBox="0 0 24 24">${icon}</svg>` +
        `<h2>${title}</h2><p>${lead}</p></a></li>`,
    )
    .join('\n  ');
}

function escaped(text) {
  return text.replace(/[&<>]/g, (each) => `&#${each.charCodeAt(0)};`);
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) {
  const [folder] = process.argv.slice(2).filter((each) => !each.startsWith('--'));
  console.log(await buildSite(folder, !process.argv.includes('--no-bench')));
}
