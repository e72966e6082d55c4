// Returns what is wrong with the page as it is shown: a list of texts.
const faults = []

// Colours as [red, green, blue, opacity], whatever their notation.
const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true })
const colours = new Map()
const colour = (text) => {
  if (!colours.has(text)) {
    canvas.clearRect(0, 0, 1, 1)
    canvas.fillStyle = text
    canvas.fillRect(0, 0, 1, 1)
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data
    colours.set(text, [r, g, b, a / 255])
  }
  return colours.get(text)
}
const over = ([r, g, b, a], [s, t, u]) => [r * a + s * (1 - a), g * a + t * (1 - a), b * a + u * (1 - a)]
const light = (rgb) => {
  const [r, g, b] = rgb.map((c) => ((c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
  return 0.2126 * r + 0.7152 * g + 0.0722 * b
}
const contrast = (one, other) => {
  const [low, high] = [light(one), light(other)].sort((a, b) => a - b)
  return (high + 0.05) / (low + 0.05)
}

// What is behind an element: its ancestors' backgrounds; in a picture also the boxes that were drawn before.
const styles = new Map()
const style = (element) => {
  if (!styles.has(element)) styles.set(element, getComputedStyle(element))
  return styles.get(element)
}
const opacity = (element) => (element ? +style(element).opacity * opacity(element.parentElement) : 1)
const behind = (element) => {
  if (!element) return [255, 255, 255]
  return over(colour(style(element).backgroundColor), behind(element.parentElement))
}
const drawn = (text) => {
  let ground = behind(text.ownerSVGElement)
  const { left, right, top, bottom } = text.getBoundingClientRect()
  const [x, y] = [(left + right) / 2, (top + bottom) / 2]
  for (const box of text.ownerSVGElement.querySelectorAll("rect")) {
    const at = box.getBoundingClientRect()
    const before = box.compareDocumentPosition(text) & Node.DOCUMENT_POSITION_FOLLOWING
    const { fill, fillOpacity } = style(box)
    if (before && fill !== "none" && at.left <= x && x <= at.right && at.top <= y && y <= at.bottom) {
      const [r, g, b, a] = colour(fill)
      ground = over([r, g, b, a * fillOpacity], ground)
    }
  }
  return ground
}

const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT)
for (let node; (node = texts.nextNode()); ) {
  const element = node.parentElement
  if (!node.data.trim() || !element.checkVisibility({ visibilityProperty: true }) || opacity(element) === 0) continue
  const svg = element.ownerSVGElement
  if (svg && element.closest("title, desc")) continue
  const ground = svg ? drawn(element.closest("text")) : behind(element)
  const [r, g, b, a] = colour(svg ? style(element).fill : style(element).color)
  const found = contrast(over([r, g, b, a * opacity(element)], ground), ground)
  if (found < 4.5) faults.push(`${JSON.stringify(node.data.trim().slice(0, 30))} in ${element.tagName}.${element.getAttribute("class") ?? ""}: contrast ${found.toFixed(2)}`)
}

for (const picture of document.querySelectorAll("main figure svg, main img")) {
  const labels = (picture.getAttribute("aria-labelledby") ?? "").split(" ").filter(Boolean)
  const said = labels.map((id) => document.getElementById(id)?.textContent ?? "").concat(picture.ariaLabel ?? "", picture.alt ?? "")
  if (!said.join("").trim() || (picture.tagName === "svg" && picture.getAttribute("role") !== "img")) faults.push(`a picture has no text: ${picture.outerHTML.slice(0, 80)}`)
}

const room = document.documentElement.clientWidth
if (document.documentElement.scrollWidth > room) faults.push(`the page is ${document.documentElement.scrollWidth} px wide, of ${room}`)
for (const cell of document.querySelectorAll("table[data-cards] td"))
  if (cell.getBoundingClientRect().right > room) faults.push(`a cell is out of sight: ${cell.textContent.slice(0, 30)}`)
for (const text of document.querySelectorAll("figure svg text"))
  if (parseFloat(style(text).fontSize) * text.getScreenCTM().a < 11.5) faults.push(`a text is too small: ${text.textContent}`)
return [...new Set(faults)]
