// Servers of the demo model for the tests of the clients.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';

export const MODEL = 'cedrun-demo';
export const ASK = [{ role: 'user', content: 'Speak of Moses.' }];

// serve starts a server on a free port; stop ends it.
export async function serve(flags = [], key = '') {
  const env = Object.fromEntries(Object.entries(process.env).filter(([k]) => !k.startsWith('CEDRUN_')));
  if (key) env.CEDRUN_API_KEY = key;
  const args = ['serve', '--port', '0', '--log-level', 'warn', '--drain-time', '2s', ...flags];
  const child = spawn(process.env.CEDRUN, args, { env, stdio: ['ignore', 'pipe', 'inherit'] });
  const [url] = await once(createInterface({ input: child.stdout }), 'line');
  return {
    url,
    stop: async () => {
      child.kill('SIGTERM');
      const [code] = await once(child, 'exit');
      if (code !== 0) throw new Error(`the server left with status ${code}`);
    },
  };
}

// idle waits until nothing runs.
export async function idle(url) {
  for (const end = Date.now() + 10000; ; await new Promise((r) => setTimeout(r, 10))) {
    const { running, waiting } = await (await fetch(url + '/ready')).json();
    if (running + waiting === 0) return;
    if (Date.now() > end) throw new Error('a request still runs');
  }
}

// finished is the first answer that its limit does not cut off.
export async function finished(ask) {
  for (let seed = 0; seed < 8; seed++) {
    try {
      return await ask(seed);
    } catch (e) {
      if (!/length limit|JSON|parse|Unterminated/.test(String(e))) throw e;
    }
  }
  throw new Error('no answer ended within its limit');
}
