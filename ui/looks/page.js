// What the browser does by itself on the page. Listens on the document, since Gradio makes its parts late and anew.
