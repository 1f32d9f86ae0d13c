// The tab "Decide": digits on a phone's keyboard, and where to look once it was pressed. Listens on the document, since Gradio makes its parts late and anew.

document.addEventListener("focusin", (event) => {
    if (event.target.matches?.("#decide-form input:not([role])")) event.target.inputMode = "decimal";
});

function over(looks) {
    const refused = document.querySelector("#decide-form .refusal p");
    if (document.querySelector("#decide-said [data-working]")) {
        if (looks) setTimeout(over, 50, looks - 1); // what it came to is not drawn yet
    } else if (refused) refused.closest(".one-field").querySelector("input:not([role])").focus(); // what is wrong is read out with its field
    else if (!document.querySelector("#decide-said p")) {
        const behavior = matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth";
        document.querySelector("#decision .verdict")?.scrollIntoView({block: "nearest", behavior});
    }
}

document.addEventListener("decide-over", () => setTimeout(over, 50, 40));
