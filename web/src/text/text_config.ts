/** What of `model.json` says how a language model is used. */

import { WebGPUError } from '../errors';
import type { ModelCard } from '../model_card';

/** What the generator must know of a model. */
export interface TextConfig {
  /** The method that takes tokens and positions; `forward` unless said. */
  method?: string;
  /** Tokens that end an answer. */
  eos: readonly number[];
  /** How many tokens fit the caches. */
  context: number;
  /** How many tokens a call takes. */
  longest: number;
  /** The Jinja template of conversations. */
  chatTemplate?: string;
  /** What the template names, such as special tokens. */
  templateValues?: Record<string, unknown>;
  /** The first turn of conversations that have no system turn. */
  system?: string;
}

/** Fields of `model.json` that only language models have. */
interface LanguageCard {
  generation?: { context?: number; prompt?: number; ends?: number[] };
  template?: { file: string; values?: Record<string, unknown> };
}

/** Reads a model's `generation`, and takes its template's text with it. */
export function readTextConfig(
  card: Pick<ModelCard, 'name'> & LanguageCard,
  chatTemplate?: string,
): TextConfig {
  const { context, prompt, ends } = card.generation ?? {};
  if (context === undefined || prompt === undefined || ends === undefined) {
    throw new WebGPUError(
      'NotSupported',
      'model.json: a language model must say its generation.context, prompt and ends,' +
        ` got ${card.name} without them; export the model again`,
    );
  }
  const config: TextConfig = { eos: ends, context, longest: prompt };
  if (chatTemplate !== undefined) {
    config.chatTemplate = chatTemplate;
    config.templateValues = card.template?.values ?? {};
  }
  return config;
}
