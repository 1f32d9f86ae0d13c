// Copying where a browser has no clipboard for a page, or no leave: over plain http from another machine, or in a frame. The older way works there, and
// Gradio's own copy buttons take it, too.

const clipboard = navigator.clipboard ?? {};
const theirs = clipboard.writeText?.bind(clipboard);

function older(text) {
    const before = document.activeElement;
    const field = Object.assign(document.createElement('textarea'), {value: text, readOnly: true});
    field.style.cssText = 'position: fixed; inset: 0 auto auto 0; opacity: 0; white-space: pre-wrap'; // every blank of it is copied
    document.body.append(field);
    field.select();
    const done = document.execCommand('copy');
    field.remove();
    before?.focus({preventScroll: true});
    if (!done) throw new Error('no copy');
}

clipboard.writeText = async (text) => {
    if (theirs && await theirs(text).then(() => true, () => false)) return;
    older(text);
};
if (!navigator.clipboard) Object.defineProperty(navigator, 'clipboard', {value: clipboard});
