/** fixture-models.js: the small models of the fixtures, and which of them this engine must run. */
import { fixture, fixtureNames } from './fixtures.js';
import { readGguf } from './read-gguf.js';
import { table } from './tables.js';

/** What this engine computes with: names of architectures, GGUF id to name of types. */
export const ARCHS = table('arch', 'ARCH').map(([name]) => name);
export const TYPE_NAMES = new Map(table('quant', 'QUANT').map(([name, id]) => [Number(id), name]));
const FLOATS = ['F32', 'F16', 'BF16'];
export const isQuantised = (type) => !FLOATS.includes(type);

/** A model of the fixtures by what tells how near it must come. */
function describe(name) {
  const { meta, tensors } = readGguf(fixture(`${name}.gguf`));
  const types = new Set([...tensors.values()].map((t) => TYPE_NAMES.get(t.typeId)));
  const arch = meta.get('general.architecture');
  const experts = meta.has(`${arch}.expert_count`);
  const quantised = [...types].filter(isQuantised);
  const type = quantised[0] ?? ['F16', 'BF16', 'F32'].find((t) => types.has(t));
  return {
    name,
    arch,
    experts,
    type,
    types: [...types],
    covered: ARCHS.includes(arch) && !types.has(undefined),
    quantised: quantised.length > 0,
    /* a matrix of floats, whose products have bits of their own where they are fused */
    floats: [...tensors.values()].some((t) => t.dims.length > 1 && FLOATS.includes(TYPE_NAMES.get(t.typeId))),
    /* the fixtures' table of differences */
    row: name.startsWith('models/')
      ? `stories260K ${type}`
      : experts && quantised.length > 0
        ? `MoE ${type}`
        : quantised.length > 1
          ? 'mixtures'
          : type,
  };
}

/** All of them. */
export const MODELS = ['tiny', 'models'].flatMap((folder) =>
  fixtureNames(folder)
    .filter((name) => name.endsWith('.gguf'))
    .map((name) => describe(`${folder}/${name.slice(0, -5)}`)),
);

/** Those whose architecture and types have a row. */
export const COVERED = MODELS.filter((model) => model.covered);
