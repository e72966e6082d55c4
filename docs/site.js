// On a phone site.css shows each row of a table of sentences as a card. There the heading of a column stands at its cells.
document$.subscribe(() => {
  for (const table of document.querySelectorAll(".md-typeset table:not([class])")) {
    const heads = [...table.querySelectorAll("thead th")].map((head) => head.textContent)
    const cells = [...table.querySelectorAll("tbody td")]
    if (heads.length < 3 || !cells.some((cell) => cell.textContent.length > 40)) continue
    table.dataset.cards = ""
    for (const cell of cells) cell.dataset.head = heads[cell.cellIndex]
  }
})
