/** A conversation as the text that a model was taught with, by its Jinja template. */

import { Template } from '@huggingface/jinja';
import { WebGPUError } from '../errors';

/** One turn of a conversation, as everybody's chat APIs have it. */
export interface Message {
  role: 'system' | 'user' | 'assistant' | (string & {});
  content: string;
}

/** Special tokens that templates name, such as `bos_token`. */
export type TemplateValues = Record<string, unknown>;

/** Renders conversations; the template is parsed once. */
export class ChatTemplate {
  private readonly template: Template;

  constructor(
    text: string,
    private readonly values: TemplateValues = {},
  ) {
    try {
      this.template = new Template(text);
    } catch (error) {
      throw new WebGPUError(
        'InvalidArgument',
        `ChatTemplate: the template must be Jinja, got ${reason(error)}`,
        { cause: error },
      );
    }
  }

  /** The text of all turns, and by default what begins the assistant's next one. */
  render(messages: readonly Message[], addGenerationPrompt = true): string {
    try {
      return this.template.render({
        ...this.values,
        messages: messages.map((message) => ({ ...message })),
        add_generation_prompt: addGenerationPrompt,
      });
    } catch (error) {
      throw new WebGPUError(
        'InvalidArgument',
        `ChatTemplate: the conversation must suit the template, got ${reason(error)}`,
        { cause: error },
      );
    }
  }
}

function reason(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
