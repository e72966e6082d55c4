// Puts questions to the index of a built site by the site's own search: node ask.js SITE '["unique", …]'
const fs = require("fs")
const [site, questions] = [process.argv[2], JSON.parse(process.argv[3])]
const workers = `${site}/assets/javascripts/workers/`
const worker = fs.readdirSync(workers).find((name) => /^search.*\.js$/.test(name))
const index = JSON.parse(fs.readFileSync(`${site}/search/search_index.json`, "utf8"))

const answers = []
let listener
globalThis.self = globalThis
globalThis.addEventListener = (_, receive) => (listener = receive)
globalThis.postMessage = (message) => answers.push(message)
require("vm").runInThisContext(fs.readFileSync(workers + worker, "utf8"))

const [SETUP, QUERY, RESULT] = [0, 2, 3]
const main = async () => {
  await listener({ data: { type: SETUP, data: { ...index, options: { suggest: true } } } })
  for (const data of questions) await listener({ data: { type: QUERY, data } })
  const results = answers.filter((answer) => answer.type === RESULT)
  console.log(JSON.stringify(results.map(({ data }) => data.items.map((group) => group[0].location.split("#")[0]))))
}
main()
