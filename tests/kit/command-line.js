/** command-line.js: calling `tabllama` as its users do, with files in a folder of the test's own. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after } from 'node:test';
import { fileURLToPath } from 'node:url';

export const CLI = fileURLToPath(new URL('../../web/cli.js', import.meta.url));
export const FOLDER = mkdtempSync(path.join(tmpdir(), 'tabllama-'));
after(() => rmSync(FOLDER, { recursive: true }));

/** A template that shows the roles. */
export const TEMPLATE =
  '{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}' +
  '{% if add_generation_prompt %}<assistant>{% endif %}';

/** @param {string} name @param {Uint8Array | string | object} content */
export function file(name, content) {
  const full = path.join(FOLDER, name);
  writeFileSync(
    full,
    content instanceof Uint8Array || typeof content === 'string' ? content : JSON.stringify(content),
  );
  return full;
}

/**
 * @param {string[]} args
 * @param {object} [options]
 * @param {string} [options.input]  stdin, then its end
 * @param {(child: import('node:child_process').ChildProcess, output: { stdout: string }) => void} [options.whileRunning]
 *   called at each piece of output, with stdin left open
 * @param {number} [options.interruptAfter]  milliseconds
 * @returns {Promise<{ code: number | null, signal: string | null, stdout: string, stderr: string }>}
 */
export function cli(args, { input = '', whileRunning, interruptAfter } = {}) {
  return new Promise((resolve) => {
    const child = spawn(process.execPath, [CLI, ...args]);
    const output = { stdout: '', stderr: '' };
    child.stdout.on('data', (data) => {
      output.stdout += data;
      whileRunning?.(child, output);
    });
    child.stderr.on('data', (data) => (output.stderr += data));
    child.stdin.on('error', () => {}); // it may end before it has read all
    if (whileRunning) child.stdin.write(input);
    else child.stdin.end(input);
    const timer = setTimeout(() => child.kill('SIGKILL'), 60000);
    if (interruptAfter) setTimeout(() => child.kill('SIGINT'), interruptAfter);
    child.on('close', (code, signal) => {
      clearTimeout(timer);
      resolve({ code, signal, ...output });
    });
  });
}

/** stdout of a call that must go well and say nothing else. */
export async function good(args, options) {
  const { code, signal, stdout, stderr } = await cli(args, options);
  assert.deepEqual({ code, signal, stderr }, { code: 0, signal: null, stderr: '' }, args.join(' '));
  return stdout;
}

/** A call that must fail with one sentence. */
export async function bad(args, expected, sentence, options) {
  const { code, stdout, stderr } = await cli(args, options);
  assert.equal(code, expected, `${args.join(' ')}: ${stderr}`);
  assert.equal(stdout, '');
  assert.match(stderr, /^tabllama: [^\n]+\n$/, 'one line');
  assert.doesNotMatch(stderr, /\bError\b|\n\s+at /, 'no class name, no stack');
  assert.match(stderr, sentence);
}
