// Copy link: the address that the visitor sees, with what is filled in now; shown where the browser allows no copy.
// The button stands beside Settings; a hidden one of Gradio's has the values, and hands them over by the event copy-link.

const HUB = 'https://huggingface.co';
const by = (id) => document.getElementById(id);

// A Space stands in a frame of its page on the Hub, whose address is the one to pass on. Our own query may hold a secret (__sign): it is left out.
function address(space) {
    let around = '';
    if (window.parent !== window) around = location.ancestorOrigins?.[0] ?? (document.referrer && new URL(document.referrer).origin);
    return space && around === HUB ? `${HUB}/spaces/${space}` : location.origin + location.pathname;
}

function linkOf({values, names, defaults, space}) {
    const query = new URLSearchParams();
    names.forEach((name, i) => {
        if (![null, undefined, '', defaults[i]].includes(values[i])) query.set(name, values[i]);
    });
    const asked = query.toString().replaceAll('+', '%20'); // some programs take no + for a space
    return address(space) + (asked && `?${asked}`);
}

function tell() {
    const button = by('copy-link');
    button.textContent = 'Copied';
    if (by('said')) by('said').textContent = 'Link copied';
    setTimeout(() => { button.textContent = 'Copy link'; }, 1500);
}

function show(words, link) {
    const row = by('link-shown');
    row.querySelector('span').textContent = words;
    const field = row.querySelector('input');
    row.hidden = false;
    field.hidden = !link;
    field.value = link;
    if (link) field.focus();
    field.select();
    if (by('said')) by('said').textContent = words;
}

document.addEventListener('copy-link', async ({detail}) => {
    const link = linkOf(detail);
    by('link-shown').hidden = true;
    if (link.length > detail.most) {
        show(`Too long for a link: it would have ${link.length.toLocaleString('en')} characters, and ${detail.most.toLocaleString('en')} are the most.`, '');
        return;
    }
    try {
        await navigator.clipboard.writeText(link);
        tell();
    } catch {
        show('The browser allows no copy. The link:', link);
    }
});

document.addEventListener('click', (event) => {
    if (event.target.id === 'copy-link') by('link-values')?.click();
    else if (event.target.id === 'link-close') {
        by('link-shown').hidden = true;
        by('copy-link').focus();
    }
});
