"""What a visitor does in the tabs of the page: open one, compare, save a file, run a file of prompts, decide."""

from __future__ import annotations

from pathlib import Path

from tests.support.browser_tab import Tab


def compare(tab: Tab, prompt: str = "") -> None:
    tab.send(prompt)
    tab.wait_idle()
    tab.wait(lambda: tab.verdict, "who won")


def open_page(tab: Tab, name: str) -> None:
    tab.page.get_by_role("tab", name=name).click()


def save(tab: Tab, button: str) -> tuple[str, str]:
    """The name and the text of the file that a click on `button` gives."""
    with tab.page.expect_download() as saved:
        tab.page.locator(button).click()
    return saved.value.suggested_filename, Path(saved.value.path()).read_bytes().decode("utf-8")


def download(tab: Tab, button: str) -> str:
    return save(tab, button)[1]


def choose_file(tab: Tab, path: Path, data: str) -> None:
    path.write_text(data, "utf-8")
    open_page(tab, "Prompts file")
    tab.page.locator("#prompts-file input[type=file]").set_input_files(str(path))
    tab.page.locator("#prompts-file").get_by_text(path.stem).first.wait_for()


def start_file(tab: Tab, path: Path, data: str) -> None:
    choose_file(tab, path, data)
    tab.page.locator("#series-run").click()


def progress(tab: Tab) -> str:
    return tab.page.locator("#series-progress").text_content() or ""


def decide(tab: Tab, *dollars: str) -> None:
    """Type what an hour of each lane costs, press Enter, and wait for what it comes to."""
    open_page(tab, "Decide")
    fields = tab.page.locator("#decide-form .price input:not([role])")
    for number, price in enumerate(dollars):
        fields.nth(number).fill(price)
    tab.page.evaluate("document.querySelector('#decision .told')?.remove()")
    fields.nth(len(dollars) - 1).press("Enter")
    tab.wait(lambda: tab.page.locator("#decision .told, #decide-form .refusal p").count(), "a decision")
