// A connection that is lost for a while. Gradio would load the page anew once it is back, even where only a look at the lanes had failed, and with that go
// what was typed, answered and measured. So a call that can't be made waits, and is made when the server is there again. What streams is Gradio's.
// A visitor who is logged out is told, too: Gradio says nothing, and does nothing.

const PAUSE_MS = 1000;
const LOST = 'No connection to the server: trying again. Nothing has to be pressed twice.';
const LOGGED_OUT = 'You are logged out. Load the page anew to log in; what stands here is gone then.';
const theirs = window.fetch;
const told = Object.assign(document.createElement('div'), {id: 'connection'});
told.setAttribute('role', 'alert');
let leaving = false; // what is cut off then is no loss
let waiting = null;

window.addEventListener('pagehide', () => { leaving = true; });
window.addEventListener('pageshow', () => { leaving = false; });

function say(words) {
    if (told.textContent === words) return;
    document.body.append(told);
    told.textContent = words;
}

// Whether the server that answers at last is the one that this page is of.
async function back() {
    say(LOST);
    const {root, api_prefix: prefix, app_id: ours} = window.gradio_config;
    let found = null;
    while (!found) {
        await new Promise((over) => setTimeout(over, PAUSE_MS));
        found = await theirs(`${root}${prefix}/app_id`).then((answer) => answer.ok ? answer.json() : null).catch(() => null);
    }
    waiting = null;
    say('');
    return found.app_id === ours;
}

window.fetch = async (asked, options) => {
    const ours = typeof options?.body === 'string' && new URL(asked, location.href).origin === location.origin;
    for (;;) {
        try {
            const answer = await theirs(asked, options);
            if (ours && !waiting) say(answer.status === 401 ? LOGGED_OUT : '');
            return answer;
        } catch (error) {
            if (!ours || leaving || options.signal?.aborted || !await (waiting ??= back())) throw error;
        }
    }
};
