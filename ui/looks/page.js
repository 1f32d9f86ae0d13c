// What the browser does by itself on the page: keys, the settings' drawer, copying, what is read out, and a warning before a reload.
// Listens on the document, since Gradio makes its parts late and anew. Keeps nothing: no prompt and no answer goes into the browser's storage.

const NARROW = 700; // pixels; the style sheets have the same
const one = (selector, within = document) => within.querySelector(selector);
const running = () => one('#send')?.textContent.trim() === 'Stop';

// ---- the settings' drawer

function drawer(open) {
    const panel = one('#settings');
    if (panel) panel.inert = !open; // at once, while it is still seen to slide away
    panel?.classList.toggle('open', open);
    const opener = one('#settings-open');
    opener?.setAttribute('aria-expanded', String(open));
    if (open && panel) {
        panel.setAttribute('role', 'dialog');
        panel.setAttribute('aria-label', 'Settings');
        setTimeout(() => !panel.inert && one('input', panel)?.focus(), 50);
    } else opener?.focus();
}

// ---- keys

document.addEventListener('keydown', (event) => {
    // a keyboard's own list of signs, or that of a field, is closed by it: that stops nothing
    if (event.key !== 'Escape' || event.defaultPrevented || event.isComposing || event.target.role === 'combobox') return;
    if (one('#settings.open')) drawer(false);
    else if (!one(':popover-open') && running()) {
        // each lane's own button: Send takes no Stop so soon after it, for a double click's sake
        for (const stop of document.querySelectorAll('.lane button.stop')) if (stop.offsetParent) stop.click();
    }
});

// ---- clicks

async function copy(button, text) {
    button.dataset.words ??= button.textContent; // a second click finds "Copied"
    try {
        await navigator.clipboard.writeText(text);
        button.textContent = 'Copied';
    } catch {
        button.textContent = 'The browser allows no copy';
    }
    said.textContent = button.textContent;
    setTimeout(() => { button.textContent = button.dataset.words; }, 1500);
}

document.addEventListener('click', (event) => {
    const button = event.target.closest?.('button');
    if (!button) return;
    if (button.id === 'settings-open') drawer(!one('#settings.open'));
    else if (button.id === 'settings-close') drawer(false);
    else if (button.id === 'formatted') button.setAttribute('aria-pressed', String(one('#lanes').classList.toggle('formatted')));
    else if (button.dataset.copy) copy(button, button.dataset.copy);
    else if ('copyAnswer' in button.dataset) copy(button, one('[data-testid=bot] .message-content', button.closest('.lane'))?.textContent ?? '');
});

// ---- read out: each lane's phase once, who won, how near the answers are token by token, and what is decided; never a token

const said = Object.assign(document.createElement('div'), {className: 'unseen', id: 'said'});
said.setAttribute('role', 'status');
said.setAttribute('aria-live', 'polite');
const told = new Map();

function news(key, phase, words) {
    const before = told.get(key);
    told.set(key, phase);
    return before === undefined || before === phase ? [] : [words];
}

function look() {
    if (!said.isConnected) document.body.append(said);
    const heard = []; // all at once: of two in a row a reader would be told the last alone
    for (const lane of document.querySelectorAll('.lane')) {
        const status = one('.status', lane), name = one('h2', lane)?.textContent;
        if (!status || !name) continue;
        heard.push(...news(lane.id, status.dataset.phase, `${name}: ${one('.phase', status).textContent}`));
        const log = one('[role=log]', lane);
        if (log && log.getAttribute('aria-live') !== 'off') {
            log.setAttribute('aria-live', 'off'); // or every frame of an answer is read out
            log.setAttribute('aria-label', `Answer of ${name}`);
            one('[role=complementary]', log)?.removeAttribute('role');
        }
    }
    const board = one('.board');
    if (board?.dataset.state === 'running' && told.get('board') !== 'running' && innerWidth <= NARROW) {
        // what was asked for is below the fold of a phone
        one('#board').scrollIntoView({block: 'start', behavior: matchMedia('(prefers-reduced-motion: reduce)').matches ? 'auto' : 'smooth'});
    }
    if (board) {
        const parts = board.querySelectorAll(board.dataset.state === 'done' && !one('.no-winner', board) ? '.fact strong, .standings tr, .caveat' : '.caveat');
        heard.push(...news('board', board.dataset.state, [...parts].map((part) => part.textContent).join('. ')));
    }
    const scored = one('#fork .fork-lead')?.textContent ?? '';
    heard.push(...news('scored', scored, scored));
    const decided = one('#decision .told')?.textContent ?? '';
    if (one('#decide-said [data-working]')) told.set('decision', 'working'); // what it comes to is told, the same as before or not
    else if (!one('#decide-said p, #decide-form .refusal p')) heard.push(...news('decision', decided, decided));
    const words = heard.filter(Boolean).join('. ');
    if (words) said.textContent = words;
}

let due = false;
new MutationObserver(() => {
    if (due) return;
    due = true;
    setTimeout(() => { due = false; look(); }, 100);
}).observe(document, {subtree: true, childList: true, characterData: true});

// ---- paper is white: of dark colours a browser makes grey letters on it

window.addEventListener('beforeprint', () => {
    if (!document.body.classList.contains('dark')) return;
    document.body.classList.remove('dark');
    window.addEventListener('afterprint', () => document.body.classList.add('dark'), {once: true});
});

// ---- a reload loses a run, and what the tab has kept

window.addEventListener('beforeunload', (event) => {
    const file = one('#series-stop:enabled') || one('#series-rows li');
    if (running() || file || Number(one('.board')?.dataset.kept) > 0) event.preventDefault();
});
