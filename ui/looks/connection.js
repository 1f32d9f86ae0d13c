// A connection that is lost for a while. Gradio would load the page anew once it is back, even where only a look at the lanes had failed, and with that go
// what was typed, answered and measured. So a call that can't be made waits, and is made when the server is there again. What streams is Gradio's.
// Whether a call whose answer is lost came or not can't be seen from here, and a Send that is made twice is a Stop: each has a name, and the server
// (`ui/programs/once.py`) answers one that it knows as it did before.
// A visitor who is logged out is told, too: Gradio says nothing, and does nothing.

const PAUSE_MS = 1000;
const READ_MS = 6000;
const MOST_TIMES = 5; // of one call, while the server is there
const BETWEEN = [502, 503, 504]; // of a proxy whose server is away or starts anew
const PAGE = crypto.getRandomValues(new Uint32Array(2)).join('-');
const LOST = 'No connection to the server: trying again. Nothing has to be pressed twice.';
const STUCK = 'The server is there, but this did not get through to it. Try again.';
const LOGGED_OUT = 'You are logged out. Load the page anew to log in; what stands here is gone then.';
const theirs = window.fetch;
const told = Object.assign(document.createElement('div'), {id: 'connection'});
told.setAttribute('role', 'alert');
let leaving = false; // what is cut off then is no loss
let waiting = null;
let calls = 0;
let api = '', tab = ''; // the server's address, and our name there, once a call has told them
let readUntil = 0; // by a look at the lanes it would be gone at once

// A browser keeps a page that is left for another, and shows it again as it was, by its Back: then nothing is gone, but for what was just being written.
const AT_WORK = '#send.stop, #series-stop:enabled, #fork-stop';
let closed = false;

window.addEventListener('pagehide', (event) => {
    leaving = true;
    closed = Boolean(tab) && !(event.persisted && !document.querySelector(AT_WORK));
    if (closed) navigator.sendBeacon(`${api}/closed/${tab}`); // a connection that breaks is no closed tab (`ui/programs/beats.py`)
});
window.addEventListener('pageshow', () => {
    leaving = false;
    if (!closed) return;
    window.addEventListener('beforeunload', (event) => event.stopImmediatePropagation(), true); // what it would warn of is gone already
    location.reload();
});

function say(words) {
    if (told.textContent === words) return;
    document.body.append(told);
    told.textContent = words;
}

// Whether the server that answers at last is the one that this page is of.
async function back() {
    say(LOST);
    let found = null;
    while (!found) {
        await new Promise((over) => setTimeout(over, PAUSE_MS));
        found = await theirs(`${api}/app_id`).then((answer) => answer.ok ? answer.json() : null).catch(() => null);
    }
    waiting = null;
    say('');
    return found.app_id === window.gradio_config.app_id;
}

// Raises where no server had the call, or none is known to.
async function asked(to, options) {
    const answer = await theirs(to, options);
    if (BETWEEN.includes(answer.status) && !answer.headers.get('content-type')?.includes('json')) throw new TypeError(`no server: ${answer.status}`);
    return answer;
}

window.fetch = async (where, options) => {
    const to = new URL(where.url ?? where, location.href);
    const named = typeof options?.body === 'string' && to.origin === location.origin && /"session_hash":"([\w-]+)"/.exec(options.body)?.[1];
    const prefix = `${window.gradio_config?.api_prefix}/`;
    if (!named || !to.pathname.includes(prefix)) return theirs(where, options);
    tab = named;
    api = to.origin + to.pathname.slice(0, to.pathname.lastIndexOf(prefix) + prefix.length - 1); // behind a proxy the page's configuration may have another
    const headers = new Headers(options.headers);
    headers.set('X-Once', `${tab}/${PAGE}-${++calls}`);
    for (let times = 1; ; times++) {
        if (waiting && !await waiting) throw new TypeError('another server'); // what is pressed meanwhile is made once, then
        try {
            const answer = await asked(to, {...options, headers});
            if (!waiting && performance.now() > readUntil) say(answer.status === 401 ? LOGGED_OUT : '');
            return answer;
        } catch (error) {
            if (leaving || options.signal?.aborted) throw error;
            if (times === MOST_TIMES) {
                say(STUCK);
                readUntil = performance.now() + READ_MS;
                return new Response(JSON.stringify({error: STUCK}), {status: 500}); // at which Gradio does nothing, and keeps the page
            }
            if (!await (waiting ??= back())) throw error;
        }
    }
};
