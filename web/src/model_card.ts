/** `model.json`, what a folder says of the program in it: `python examples/gallery`. */

import { WebGPUError } from './errors';

/** A file of the folder. */
export interface CardFile {
  file: string;
  bytes: number;
  /** As `Module.load` takes it. */
  integrity: string;
}

/** A size that varies. */
export interface CardSize {
  name: string;
  min: number;
  max: number;
  step: number;
}

/** An input or output of a method; other fields say how a page makes or shows it. */
export interface CardPort {
  name: string;
  type: string;
  dims: (number | CardSize)[];
  meaning: string;
  [more: string]: unknown;
}

/** Whose something is. */
export interface CardOrigin {
  name: string;
  package: string;
  licence: string;
}

export interface ModelCard {
  format: number;
  name: string;
  title: string;
  summary: string;
  /** The Python that exported the program. */
  source: string;
  program: CardFile;
  methods: Record<string, { inputs: CardPort[]; outputs: CardPort[] }>;
  weights: CardOrigin;
  samples: (CardOrigin & { file: string })[];
  files: CardFile[];
  tokenizer?: string;
  /** The same model for onnxruntime-web. */
  onnx?: CardFile;
  [more: string]: unknown;
}

/** Where a folder is, with a slash at its end. */
export function folderUrl(folder: string | URL): URL {
  const base = typeof document === 'undefined' ? undefined : document.baseURI;
  return new URL(`${String(folder).replace(/\/+$/, '')}/`, base);
}

/** Reads `model.json` of a folder. */
export async function fetchCard(
  folder: string | URL,
  signal?: AbortSignal,
): Promise<ModelCard> {
  const url = new URL('model.json', folderUrl(folder));
  const card = (await fetchJson(url, signal)) as ModelCard;
  if (card.format !== 1 || typeof card.program?.file !== 'string') {
    throw new WebGPUError(
      'NotSupported',
      `model.json: format must be 1, got ${String(card.format)}; export the model again`,
    );
  }
  return card;
}

/** A port by name, or the first. */
export function portOf(
  card: ModelCard,
  kind: 'inputs' | 'outputs',
  method = 'forward',
  index = 0,
): CardPort {
  const port = card.methods[method]?.[kind][index];
  if (!port) {
    throw new WebGPUError(
      'NotFound',
      `model.json: ${method} must have ${index + 1} ${kind}, got fewer`,
    );
  }
  return port;
}

/** What is at an address, as JSON; an error names the address. */
export async function fetchJson(
  url: string | URL,
  signal?: AbortSignal,
): Promise<object> {
  const response = await fetchFile(url, signal);
  try {
    return (await response.json()) as object;
  } catch (error) {
    throw new WebGPUError('InvalidArgument', `${url} must be JSON, got other text`, {
      cause: error,
    });
  }
}

/** What is at an address; an error names the address. */
export async function fetchFile(
  url: string | URL,
  signal?: AbortSignal,
): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(url, signal ? { signal } : {});
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new WebGPUError(
      'AccessFailed',
      `${url} must be reachable, got ${error instanceof Error ? error.message : error}`,
      { cause: error },
    );
  }
  if (!response.ok) {
    throw new WebGPUError(
      'NotFound',
      `${url} must be there, got HTTP status ${response.status}`,
    );
  }
  return response;
}
