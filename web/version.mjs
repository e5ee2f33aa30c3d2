/**
 * The package's version: that of the newest git tag, as for the Python package, or of the
 * newest release where there is no git. `node version.mjs` writes it into package.json, in
 * which it is 0.0.0, for whoever publishes the package.
 */

import { execFileSync } from 'node:child_process';
import { readFile, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const ROOT = dirname(fileURLToPath(import.meta.url));

export async function version() {
  return tagged() ?? (await released());
}

function tagged() {
  const command = ['describe', '--tags', '--abbrev=0', '--match', 'v[0-9]*'];
  const options = { cwd: ROOT, encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] };
  try {
    return execFileSync('git', command, options).trim().slice(1);
  } catch (error) {
    // No git, no repository, or no tag: it ran and failed, or there is nothing to run.
    if (error.code !== 'ENOENT' && error.status === undefined) throw error;
    return undefined;
  }
}

async function released() {
  const file = join(ROOT, '..', 'pyproject.toml');
  const found = /^fallback_version = "(.+)"$/m.exec(await readFile(file, 'utf8'));
  if (found === null) throw new Error(`${file} must have fallback_version, got none`);
  return found[1];
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const file = join(ROOT, 'package.json');
  const text = await readFile(file, 'utf8');
  const written = text.replace(
    /^ {2}"version": ".*",$/m,
    `  "version": "${await version()}",`,
  );
  await writeFile(file, written);
}
