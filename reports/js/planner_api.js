// Requests to the server that this page came from.

// The server's errors name positions and quotes in YAML that the page wrote; its user has never seen them.
function withoutPosition(message) {
  return message.replace(/\brequest:(\d+:)+ /g, '').replaceAll('the quoted text "', '"');
}

// The error of a request, with the line of its YAML (counted from 0) and the text before the value that was refused.
function refusal(message, yaml) {
  const [, line, column] = /\brequest:(\d+):(\d+): /.exec(message) || [];
  const place = line ? { line: line - 1, before: yaml.split('\n')[line - 1].slice(0, column - 1) } : null;
  return Object.assign(new Error(withoutPosition(message)), { place });
}

async function getJson(path) {
  const response = await fetch(path);
  if (!response.ok) throw new Error((await response.json()).error);
  return response.json();
}

// Sends YAML and hands over each line of the answer as it comes. Ends when the answer does; `signal` aborts it.
async function postLines(path, yaml, signal, onLine) {
  const response = await fetch(path, { method: 'POST', body: yaml, signal, headers: { 'Content-Type': 'application/yaml' } });
  if (!response.ok) throw refusal((await response.json()).error, yaml);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    const lines = (rest + value).split('\n');
    rest = lines.pop();
    for (const line of lines) {
      const read = JSON.parse(line);
      if (read.error) throw refusal(read.error, yaml);
      onLine(read);
    }
  }
}

// Allows one request of a kind at a time. A newer one waits for the running one, so that a moving slider still shows results;
// a request that takes too long is aborted.
class Latest {
  constructor(work, patience) {
    this.work = work;
    this.patience = patience;  // milliseconds
    this.running = null;
    this.again = false;
  }

  request() {
    if (!this.running) return this.start();
    this.again = true;
    if (performance.now() - this.began > this.patience) this.running.abort();
  }

  async start() {
    this.again = false;
    this.running = new AbortController();
    this.began = performance.now();
    const impatient = setInterval(() => { if (this.again && performance.now() - this.began > this.patience) this.running.abort(); }, 50);
    try {
      await this.work(this.running.signal);
    } catch (error) {
      if (error.name !== 'AbortError') showRefusal(error.message, error.place);
    }
    clearInterval(impatient);
    this.running = null;
    if (this.again) this.start();
  }
}
