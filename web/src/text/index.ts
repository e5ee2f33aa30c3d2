/**
 * Text for models: tokenizers, chat templates, sampling, and streams of text.
 * @packageDocumentation
 */

export { ChatTemplate, type Message } from './chat_template';
export {
  cosine,
  cutTokens,
  type EmbedLimits,
  embed,
  largest,
  padTokens,
} from './embedding';
export {
  type GenerateOptions,
  type GenerateStats,
  loadTokenizer,
  TextGenerator,
  type TextModule,
  type TextTokenizer,
} from './generator';
export { argmax, Sampler, type SamplingOptions, softmax } from './sampling';
export { readTextConfig, type TextConfig } from './text_config';
export { TextStream } from './text_stream';
