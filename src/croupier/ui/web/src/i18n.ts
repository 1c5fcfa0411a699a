// Texts. The English text is the key; another language is a catalogue from these keys to its texts.
//
// Placeholders are {name}. A text with forms for numbers has them separated by |, and the value `n` selects one:
// English has two forms (one|other), Russian three (one|few|many).

export type Values = Record<string, string | number>
export type Locale = 'en' | 'ru'

const KEY = 'croupier.locale'
const FORMS: Record<Locale, string[]> = { en: ['one', 'other'], ru: ['one', 'few', 'many'] }

let catalogue: Record<string, string> = {}
let current: Locale = 'en'
let plurals = new Intl.PluralRules('en')

export function locale(): Locale {
  return current
}

// The BCP 47 tag for Intl: the browser's own tag when its language is the chosen one.
export function tag(): string {
  const own = globalThis.navigator?.language ?? 'en'
  return own.startsWith(current) ? own : current
}

export function chosenLocale(): Locale {
  const stored = globalThis.localStorage?.getItem(KEY)
  if (stored === 'en' || stored === 'ru') return stored
  return globalThis.navigator?.language?.startsWith('ru') ? 'ru' : 'en'
}

export function chooseLocale(choice: Locale): void {
  globalThis.localStorage?.setItem(KEY, choice)
}

export function useCatalogue(choice: Locale, texts: Record<string, string>): void {
  current = choice
  catalogue = texts
  plurals = new Intl.PluralRules(choice)
}

// Marks a text for the catalogue where it is written; t() translates it where it is shown.
export function msg(english: string): string {
  return english
}

function form(text: string, values: Values): string {
  if (!text.includes('|') || !('n' in values)) return text
  const forms = text.split('|')
  const index = FORMS[current].indexOf(plurals.select(Number(values['n'])))
  return forms[index === -1 ? forms.length - 1 : Math.min(index, forms.length - 1)] ?? text
}

export function t(english: string, values: Values = {}): string {
  const text = form(catalogue[english] ?? english, values)
  return text.replace(/\{(\w+)\}/g, (whole, name: string) => {
    const value = values[name]
    if (value === undefined) return whole
    return typeof value === 'number' ? value.toLocaleString(tag()) : value
  })
}
