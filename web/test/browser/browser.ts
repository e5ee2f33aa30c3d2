/** One Chromium for all tests, with WebGPU by SwiftShader, and pages in it. */

import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import {
  type Browser,
  type BrowserContext,
  chromium,
  type Page,
} from 'playwright-core';
import { afterAll, beforeAll } from 'vitest';
import { type Server, startServer } from './server';

export const WEB = fileURLToPath(new URL('../..', import.meta.url));
export const BUILD = join(WEB, '..', 'build', 'web');

const CHROMIUM = process.env.CHROMIUM ?? '/usr/bin/chromium';

export const FLAGS = [
  '--no-sandbox',
  '--enable-unsafe-webgpu',
  '--use-webgpu-adapter=swiftshader',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
  '--no-first-run',
  '--disable-quic',
];

/** Whether pages take plans for GPUs, though SwiftShader is none. */
export const FOR_GPUS = Boolean(process.env.FOR_GPUS);

function seemsAGpu(): void {
  Object.defineProperty(GPUAdapterInfo.prototype, 'isFallbackAdapter', {
    get: () => false,
  });
}

/** A page, and what went wrong in it without anybody catching it. */
export interface Opened {
  page: Page;
  context: BrowserContext;
  errors: string[];
}

/** The browser and the server of a test file; closed after its last test. */
export class Bench {
  browser!: Browser;
  server!: Server;
  readonly #folders: Record<string, string>;

  /** @param folders - Those of the server, beside `/dist/`, `/programs/` and `/test/`. */
  constructor(folders: Record<string, string> = {}) {
    this.#folders = {
      '/dist/': join(WEB, 'dist'),
      '/programs/': join(BUILD, 'programs'),
      '/test/': join(WEB, 'test', 'browser', 'pages'),
      ...folders,
    };
    beforeAll(() => this.#start());
    afterAll(() => this.#stop());
  }

  async #start(): Promise<void> {
    if (!existsSync(join(WEB, 'dist', 'executorch-webgpu.js'))) {
      throw new Error('web/dist must be built, got nothing; run npm run build');
    }
    this.server = await startServer(this.#folders);
    this.browser = await this.launch();
  }

  launch(flags: readonly string[] = FLAGS): Promise<Browser> {
    return chromium.launch({
      executablePath: CHROMIUM,
      args: [...flags],
      headless: true,
    });
  }

  async #stop(): Promise<void> {
    await this.browser?.close();
    await this.server?.close();
  }

  /** Opens a page in a context of its own, with caches of its own. */
  async open(path: string, browser = this.browser): Promise<Opened> {
    const context = await browser.newContext();
    if (FOR_GPUS) await context.addInitScript(seemsAGpu);
    const page = await context.newPage();
    const errors: string[] = [];
    page.on('pageerror', (error) => errors.push(String(error)));
    page.on('console', (message) => {
      if (message.type() === 'error') {
        errors.push(message.text());
      }
    });
    await page.goto(new URL(path, this.server.url).href);
    return { page, context, errors };
  }
}
