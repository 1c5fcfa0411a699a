// Paints tiles on a canvas. It knows no events and keeps no cards: a tile is painted from what it is given.

import { share as shareText } from '../format.ts'
import { t } from '../i18n.ts'
import { coloursOf } from '../theme.ts'
import type { Card, Holder, NodeRow } from '../wire.ts'
import { cellBox } from './layout.ts'
import type { Box, Layout, Tile, Title } from './layout.ts'
import { categoryOf, stateKey, useKey } from './legend.ts'
import type { Colour, StateKey } from './legend.ts'

export interface OverlayShare {
  share?: number
  slots?: string[]
}

export interface Scene {
  layout: Layout
  colour: Colour
  colours: Colours
  card: (id: string) => Card | undefined
  holder: (number: number) => Holder | undefined
  node: (name: string) => NodeRow | undefined
  dimmed: ((card: Card) => boolean) | null
  selected: ReadonlySet<string>
  focused: string | null
  hovered: string | null
  overlay: ReadonlyMap<string, OverlayShare> | null
}

export interface Colours {
  canvas: string
  cell: string
  line: string
  text: string
  muted: string
  used: string
  usedOther: string
  held: string
  accent: string
  select: string
  bad: string
  warn: string
  info: string
  mute: string
  overlay: string
  font: string
  forced: boolean
  names: Map<string, string> // colour of a pool or model
  hatch: Partial<Record<'unknown' | 'drained' | 'silent' | 'overlay', CanvasPattern>>
}

const STATE_VARIABLES: Record<StateKey, keyof Colours> = {
  faulted: 'bad', retired: 'mute', drained: 'warn', silent: 'mute', withdrawn: 'info', changing: 'info', unmanaged: 'line',
  assigned: 'used', reserved: 'held', unassigned: 'cell', unknown: 'mute',
}

const HUES = 12

// The names get hues in their order, so a pool keeps its colour while no pool is added before it.
function nameColours(names: Iterable<string>, colour: (variable: string) => string): Map<string, string> {
  const sorted = [...new Set(names)].filter(Boolean).sort()
  return new Map(sorted.map((name, place) => [name, colour(`--hue-${place % HUES}`)]))
}

export function readColours(element: HTMLElement, names: Iterable<string>): Colours {
  const style = getComputedStyle(element)
  const colour = coloursOf(element)
  const value = (name: string) => colour(`--${name}`)
  const colours: Colours = {
    canvas: value('canvas'), cell: value('cell'), line: value('cell-line'), text: value('text'), muted: value('muted'),
    used: value('used'), usedOther: value('used-other'), held: value('held'), accent: value('accent'), select: value('select'),
    bad: value('bad'), warn: value('warn'), info: value('info'), mute: value('mute'), overlay: value('overlay'),
    font: style.fontFamily, forced: matchMedia('(forced-colors: active)').matches, names: nameColours(names, colour), hatch: {},
  }
  colours.hatch = {
    unknown: hatch(colours.mute, 6, 1), silent: hatch(colours.muted, 7, 1.4), drained: hatch(colours.warn, 7, 1.5, true),
    overlay: hatch(colours.overlay, 4, 1.6),
  }
  return colours
}

function hatch(colour: string, size: number, line: number, back = false): CanvasPattern | undefined {
  const ratio = devicePixelRatio || 1
  const tile = document.createElement('canvas')
  tile.width = tile.height = Math.round(size * ratio)
  const context = tile.getContext('2d')
  if (!context) return undefined
  context.scale(tile.width / size, tile.height / size)
  context.strokeStyle = colour
  context.lineWidth = line
  context.beginPath()
  for (const shift of [-size, 0, size]) {
    context.moveTo(shift, back ? 0 : size)
    context.lineTo(shift + size, back ? size : 0)
  }
  context.stroke()
  const pattern = context.createPattern(tile, 'repeat') ?? undefined
  pattern?.setTransform(new DOMMatrix().scale(1 / ratio))
  return pattern
}

function fillColour(scene: Scene, card: Card): string {
  const { colours, colour } = scene
  if (colour === 'state') return colours[STATE_VARIABLES[stateKey(card)]] as string
  if (colour === 'use') return colours.used
  return colours.names.get(categoryOf(card, colour)) ?? colours.mute
}

function rect(context: CanvasRenderingContext2D, box: Box, colour: string | CanvasPattern | undefined): void {
  if (!colour) return
  context.fillStyle = colour
  context.fillRect(box.x, box.y, box.width, box.height)
}

// A text that fits, or nothing; ends with … where it is cut.
function label(context: CanvasRenderingContext2D, text: string, x: number, y: number, width: number): void {
  const measured = context.measureText(text).width
  if (measured <= width) return context.fillText(text, x, y)
  const letters = Math.floor((text.length * width) / measured) - 1
  if (letters >= 3) context.fillText(`${text.slice(0, letters)}…`, x, y)
}

interface Part extends Box {
  holder: number // 0: free
  text: string
}

// The rectangles of the holders: shares from the bottom, MIG slots where they start on the card.
export function parts(card: Card, box: Box): Part[] {
  if (card.mode === 'MIG') {
    const whole = card.capacity || Math.max(8, ...card.slots.map((slot) => slot.start + slot.size))
    return card.slots.map((slot) => ({
      x: box.x, y: box.y + (box.height * slot.start) / whole, width: box.width, height: (box.height * slot.size) / whole,
      holder: slot.holder, text: slot.profile,
    }))
  }
  const whole = card.capacity || 1
  let bottom = box.y + box.height
  return card.holders.map(({ number, share }) => {
    const height = Math.min(bottom - box.y, (box.height * share) / whole)
    bottom -= height
    return { x: box.x, y: bottom, width: box.width, height, holder: number, text: shareText(card, share) }
  })
}

function partColour(scene: Scene, part: Part, place: number, colour: string): string {
  if (scene.colour !== 'use') return colour
  const bound = scene.holder(part.holder)?.bound ?? true
  return bound ? (place % 2 ? scene.colours.usedOther : colour) : scene.colours.held
}

// Last, so that no hatch of a state covers them.
function paintNames(context: CanvasRenderingContext2D, scene: Scene, card: Card, box: Box): void {
  if (box.width < NAMED) return
  const colour = fillColour(scene, card)
  parts(card, box).forEach((part, place) => {
    if (part.height >= 14) paintName(context, scene, part, part, partColour(scene, part, place, colour))
  })
}

function paintParts(context: CanvasRenderingContext2D, scene: Scene, card: Card, box: Box): void {
  const colour = fillColour(scene, card)
  const seam = box.width >= 12 ? 1 : 0.5
  parts(card, box).forEach((part, place) => {
    const inner = { x: part.x, y: part.y + seam / 2, width: part.width, height: Math.max(0.75, part.height - seam) }
    if (part.holder !== 0) {
      const shade = partColour(scene, part, place, colour)
      if (scene.colour !== 'use' && place % 2) context.globalAlpha *= 0.82
      rect(context, inner, shade)
      if (scene.colour !== 'use' && place % 2) context.globalAlpha /= 0.82
    }
    if (card.mode === 'MIG') rect(context, { ...part, y: Math.round(part.y + part.height) - seam, height: seam }, scene.colours.mute)
  })
}

// Black or white, whichever can be read on the colour (`rgb(r, g, b)`).
function inkOn(colour: string): string {
  const [red = 0, green = 0, blue = 0] = (colour.match(/[\d.]+/g) ?? []).map(Number)
  return 0.299 * red + 0.587 * green + 0.114 * blue > 140 ? '#0b1014' : '#fff'
}

function paintName(context: CanvasRenderingContext2D, scene: Scene, part: Part, box: Box, colour: string): void {
  const holder = scene.holder(part.holder)
  context.font = `11px ${scene.colours.font}`
  context.fillStyle = part.holder ? inkOn(colour) : scene.colours.muted
  context.textBaseline = 'top'
  const name = holder ? `${holder.namespace}/${holder.pod}` : part.holder ? t('hidden') : t('free')
  if (box.height >= 28) {
    label(context, name, box.x + 5, box.y + 4, box.width - 10)
    label(context, part.text, box.x + 5, box.y + 17, box.width - 10)
  } else {
    label(context, `${name} ${part.text}`, box.x + 5, box.y + box.height / 2 - 6, box.width - 10)
  }
}

function paintOverlay(context: CanvasRenderingContext2D, scene: Scene, card: Card, box: Box): void {
  const added = scene.overlay?.get(card.id)
  if (!added) return
  const { colours } = scene
  const mark = (part: Box) => {
    rect(context, part, colours.canvas)
    rect(context, part, colours.hatch.overlay)
    context.strokeStyle = colours.overlay
    context.lineWidth = 1.5
    context.strokeRect(part.x + 0.75, part.y + 0.75, Math.max(0.5, part.width - 1.5), Math.max(0.5, part.height - 1.5))
  }
  if (added.slots) {
    const wanted = new Set(added.slots)
    parts(card, box).forEach((part, place) => wanted.has(card.slots[place]?.id ?? '') && mark(part))
    return
  }
  const whole = card.capacity || 100
  const used = whole - card.free
  const share = Math.min(added.share ?? whole, whole)
  const top = Math.max(0, whole - used - share)
  mark({ x: box.x, y: box.y + (box.height * top) / whole, width: box.width, height: (box.height * share) / whole })
}

// Shapes of a state, so that colour is not the only sign.
function paintState(context: CanvasRenderingContext2D, scene: Scene, card: Card, box: Box): void {
  const { colours } = scene
  const key = stateKey(card)
  const { x, y, width: w, height: h } = box
  context.lineWidth = w >= 14 ? 2 : 1.25
  if (useKey(card) === 'unknown') rect(context, box, colours.hatch.unknown)
  if (card.silent) rect(context, box, colours.hatch.silent)
  if (card.drained) rect(context, box, colours.hatch.drained)
  if (key === 'faulted') {
    const size = Math.min(w, Math.max(5, w * 0.5))
    context.fillStyle = colours.bad
    context.beginPath()
    context.moveTo(x + w - size, y)
    context.lineTo(x + w, y)
    context.lineTo(x + w, y + size)
    context.fill()
    context.strokeStyle = colours.bad
    context.strokeRect(x + 0.75, y + 0.75, w - 1.5, h - 1.5)
  } else if (key === 'retired') {
    context.strokeStyle = colours.muted
    context.beginPath()
    context.moveTo(x + 1, y + 1)
    context.lineTo(x + w - 1, y + h - 1)
    context.moveTo(x + w - 1, y + 1)
    context.lineTo(x + 1, y + h - 1)
    context.stroke()
  } else if (key === 'drained') {
    rect(context, { x, y, width: w, height: Math.min(6, Math.max(2, h * 0.08)) }, colours.warn)
  } else if (key === 'changing' || key === 'withdrawn') {
    context.strokeStyle = colours.info
    context.setLineDash(key === 'changing' ? [2, 2] : [4, 2])
    context.strokeRect(x + 0.75, y + 0.75, w - 1.5, h - 1.5)
    context.setLineDash([])
  }
  if (card.offers.length > 0) {
    context.fillStyle = colours.accent
    context.beginPath()
    context.arc(x + w / 2, y + Math.max(3, w * 0.3), Math.max(1.5, Math.min(4, w * 0.2)), 0, 7)
    context.fill()
  }
}

function paintRing(context: CanvasRenderingContext2D, box: Box, colour: string, width: number): void {
  context.strokeStyle = colour
  context.lineWidth = width
  context.strokeRect(box.x + width / 2, box.y + width / 2, box.width - width, box.height - width)
}

const NAMED = 84 // width of a cell from which the holders are named
const INDEXED = 22 // width of a cell from which its index is below it
const FOOT = 12

function paintCell(context: CanvasRenderingContext2D, scene: Scene, card: Card, outer: Box): void {
  const { colours } = scene
  const gap = outer.width >= 20 ? 3 : 1
  const foot = outer.width >= INDEXED ? FOOT : 0
  const box = { x: outer.x, y: outer.y, width: Math.max(1, outer.width - gap), height: Math.max(1, outer.height - gap - foot) }
  const dimmed = scene.dimmed?.(card) ?? false
  context.globalAlpha = dimmed ? 0.15 : 1
  rect(context, box, colours.cell)
  if (scene.colour !== 'use') {
    // The free part carries a tint, so that an empty pool can be seen too.
    context.globalAlpha = dimmed ? 0.05 : 0.22
    rect(context, box, fillColour(scene, card))
    context.globalAlpha = dimmed ? 0.15 : 1
  }
  paintParts(context, scene, card, box)
  if (colours.forced || box.width >= 10) paintRing(context, box, colours.line, 1)
  paintOverlay(context, scene, card, box)
  paintState(context, scene, card, box)
  paintNames(context, scene, card, box)
  if (foot > 0) {
    context.font = `10px ${colours.font}`
    context.textBaseline = 'top'
    context.textAlign = 'center'
    context.fillStyle = colours.muted
    context.fillText(card.index >= 0 ? String(card.index) : '?', box.x + box.width / 2, box.y + box.height + 2)
    context.textAlign = 'start'
  }
  context.globalAlpha = 1
  if (scene.selected.has(card.id)) {
    paintRing(context, box, colours.canvas, box.width >= 12 ? 4 : 2.5)
    paintRing(context, box, colours.select, box.width >= 12 ? 2.5 : 1.5)
  }
  if (scene.hovered === card.id) paintRing(context, box, colours.text, 1)
  if (scene.focused === card.id) {
    paintRing(context, { x: box.x - 2, y: box.y - 2, width: box.width + 4, height: box.height + 4 }, colours.canvas, 4)
    paintRing(context, { x: box.x - 2, y: box.y - 2, width: box.width + 4, height: box.height + 4 }, colours.accent, 2)
  }
}

// All cards of a node as one cell: the fill of all, and the worst state.
function paintNode(context: CanvasRenderingContext2D, scene: Scene, tile: Tile): void {
  const cards = tile.cards.map(scene.card).filter((card) => card !== undefined)
  const box = { x: tile.x, y: tile.y, width: Math.max(1, tile.width - 1), height: Math.max(1, tile.height - 1) }
  const size = { known: 0, used: 0 }
  for (const card of cards) {
    if (useKey(card) === 'unknown') continue
    size.known++
    const whole = { x: 0, y: 0, width: 1, height: 1 }
    size.used += parts(card, whole).reduce((sum, part) => sum + (part.holder ? part.height : 0), 0)
  }
  const dimmed = scene.dimmed !== null && cards.every((card) => scene.dimmed!(card))
  context.globalAlpha = dimmed ? 0.15 : 1
  rect(context, box, scene.colours.cell)
  const worst = cards.find((card) => stateKey(card) === 'faulted') ?? cards[0]
  if (size.known === 0) rect(context, box, scene.colours.hatch.unknown)
  else if (worst) {
    const height = (box.height * size.used) / size.known
    rect(context, { ...box, y: box.y + box.height - height, height }, fillColour(scene, worst))
    if (stateKey(worst) === 'faulted') paintRing(context, box, scene.colours.bad, 1)
  }
  context.globalAlpha = 1
  if (cards.some((card) => scene.selected.has(card.id))) paintRing(context, box, scene.colours.select, 2)
  if (tile.cards.some((card) => card === scene.focused)) paintRing(context, box, scene.colours.accent, 2)
}

export function paintTile(context: CanvasRenderingContext2D, scene: Scene, tile: Tile): void {
  rect(context, { x: tile.x - 2, y: tile.y - 2, width: tile.width + 4, height: tile.height + 4 }, scene.colours.canvas)
  if (scene.layout.perNode) return paintNode(context, scene, tile)
  if (tile.header > 0) {
    const node = scene.node(tile.node)
    context.font = `11px ${scene.colours.font}`
    context.textBaseline = 'middle'
    context.fillStyle = node?.silent ? scene.colours.bad : scene.colours.muted
    const suffix = node?.silent ? ` · ${t('silent')}` : node?.cordoned ? ` · ${t('cordoned')}` : ''
    label(context, tile.node + suffix, tile.x, tile.y + tile.header / 2, tile.width)
  }
  for (let index = 0; index < tile.cards.length; index++) {
    const card = scene.card(tile.cards[index]!)
    if (card) paintCell(context, scene, card, cellBox(scene.layout, tile, index))
  }
}

export function paintTitle(context: CanvasRenderingContext2D, scene: Scene, title: Title, text: string): void {
  context.font = `600 12px ${scene.colours.font}`
  context.textBaseline = 'middle'
  context.fillStyle = scene.colours.text
  label(context, text, title.x, title.y + 11, Math.max(title.width, 40))
}
