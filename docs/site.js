// On a phone site.css shows each row of a table of sentences, or of two columns of code, as a card. There the heading of a
// column stands at its cells; two columns need none.
document$.subscribe(() => {
  for (const table of document.querySelectorAll(".md-typeset table:not([class])")) {
    const heads = [...table.querySelectorAll("thead th")].map((head) => head.textContent)
    const cells = [...table.querySelectorAll("tbody td")]
    const [texts, most] = heads.length < 3 ? [[...table.querySelectorAll("td code")], 20] : [cells, 40]
    if (!texts.some((text) => text.textContent.length > most)) continue
    table.dataset.cards = heads.length
    for (const cell of cells) cell.dataset.head = heads[cell.cellIndex]
  }
})
