/* A user's program, as far as its types go: each line marked as an error must be one. */
import { ModelError, estimate, load, models, persist, support } from 'tabllama';
import type { GenerateOptions, Message } from 'tabllama';
import { createEngine } from 'tabllama/engine';

const messages: Message[] = [{ role: 'user', content: 'Hello' }];
const options: GenerateOptions = {
  maxTokens: 8,
  temperature: 0,
  stop: ['\n'],
  signal: AbortSignal.timeout(1000),
};
try {
  const { fits, kv, reason: why } = await estimate('model.gguf', { kvType: 'q4_0', memoryLimit: 2 ** 30 });
  console.log(fits ? kv.q8_0.perToken + 1 : why?.length);
  const handles = [] as FileSystemFileHandle[];
  const { info } = await load(handles, { token: 'hf_x', cache: 'mine' });
  if (!info.cached && (await persist())) for (const old of await models({ cache: 'mine' })) await old.delete();
  await using model = await load('model.gguf', { threads: support().threads ? 2 : 1, kvType: 'q8_0', sha256: ['a', 'b'] });
  for await (const { text, tokens } of model.generate(messages, options))
    console.log(text.length, tokens[0] + 1);
  const { reason, usage } = await model.chat({ system: 'Be brief.' }).send('Hi').result();
  const known: 'stop' | 'length' | 'context' | 'stopped' = reason;
  console.log(known, usage.promptTokens + usage.cachedTokens);
  // @ts-expect-error no such option
  model.generate('x', { maxToken: 8 });
  // @ts-expect-error no such type of cache
  await load('model.gguf', { kvType: 'f64' });
} catch (error) {
  if (error instanceof ModelError) console.log(error.code.toLowerCase(), error.message);
}

const engine = await createEngine('model.gguf', { threads: 1 });
const seq: number = engine.seq();
engine.eval({ tokens: [1, 2], seq });
const logits: Float32Array = engine.logits();
// @ts-expect-error ids, not text
engine.eval('text');
console.log(logits[0]);
