import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    projects: [
      { test: { name: 'unit', include: ['test/*.test.ts'] } },
      {
        test: {
          name: 'browser',
          include: ['test/browser/*.test.ts'],
          // One browser at a time: it has all cores.
          fileParallelism: false,
          testTimeout: 120_000,
          hookTimeout: 60_000,
        },
      },
    ],
  },
});
