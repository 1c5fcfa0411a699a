// Keeps the layout, the view (zoom and position) and the canvas in step with the model. Paints at most once a frame, and
// then only the tiles that changed, unless the view moved.

import { t } from '../i18n.ts'
import { currentModel, onFold } from '../model.ts'
import { onThemeChange } from '../theme.ts'
import type { Fold } from '../fold.ts'
import type { Card } from '../wire.ts'
import { find, hit, neighbour, within } from './hit.ts'
import type { Direction, Place } from './hit.ts'
import { cellBox, fit, groupOf, groups } from './layout.ts'
import type { Box, By, Group, Layout } from './layout.ts'
import type { Colour } from './legend.ts'
import { paintTile, paintTitle, readColours } from './paint.ts'
import type { Colours, OverlayShare, Scene } from './paint.ts'

export interface MapOptions {
  by: By
  colour: Colour
  filter: ((card: Card) => boolean) | null
  match: ((card: Card) => boolean) | null
  overlay: ReadonlyMap<string, OverlayShare> | null
  selected: ReadonlySet<string>
  compact: boolean
  width: number
  height: number
}

const MAX_CELL = 260
const PAINTED = 'croupier:cards' // marks in the browser's timeline when all cards were painted first

interface Point {
  x: number
  y: number
}

export class MapEngine {
  zoom = 1
  private x = 0 // the part of the layout that is at the left edge of the canvas
  private y = 0
  private canvas: HTMLCanvasElement | null = null
  private options: MapOptions | null = null
  private list: Group[] = []
  private layout: Layout = fit([], { width: 0, height: 0 })
  private tileOf = new Map<string, number>()
  private groupOf = new Map<string, string>()
  private colours: Colours | null = null
  private dirty = new Set<number>()
  private whole = true
  private scheduled = false
  private hovered: string | null = null
  private focused: string | null = null
  private frame: { from: Point; to: Point } | null = null
  private zoomed: (zoom: number) => void = () => {}

  attach(canvas: HTMLCanvasElement, zoomed: (zoom: number) => void): () => void {
    this.canvas = canvas
    this.zoomed = zoomed
    const folds = onFold((fold) => this.fold(fold))
    const theme = onThemeChange(() => {
      this.colours = null
      this.repaint()
    })
    return () => {
      folds()
      theme()
      this.canvas = null
    }
  }

  configure(options: MapOptions): void {
    const last = this.options
    this.options = options
    const moved = !last || last.by !== options.by || last.filter !== options.filter
    if (moved) this.regroup()
    else if (last.width !== options.width || last.height !== options.height) this.relayout()
    this.repaint()
  }

  mark({ hovered, focused }: { hovered: string | null; focused: string | null }): void {
    for (const card of [this.hovered, this.focused, hovered, focused]) this.touch(card)
    this.hovered = hovered
    this.focused = focused
    this.schedule()
  }

  private touch(card: string | null): void {
    const tile = card === null ? undefined : this.tileOf.get(card)
    if (tile !== undefined) this.dirty.add(tile)
  }

  private key(card: Card): string {
    const { by, filter } = this.options!
    if (filter && !filter(card)) return '-'
    return `${card.node}\n${card.index}\n${groupOf(card, currentModel().nodes.get(card.node), by)}`
  }

  private fold(fold: Fold): void {
    if (!this.options) return
    const model = currentModel()
    if (fold.tables.has('pools')) this.colours = null
    if (fold.all || (fold.tables.has('nodes') && this.options.by !== 'none' && this.options.by !== 'pool')) {
      this.regroup()
      return this.repaint()
    }
    for (const id of fold.cards) {
      const card = model.cards.get(id)
      const known = this.groupOf.get(id) ?? '-'
      if ((card ? this.key(card) : '-') !== known) {
        this.regroup()
        return this.repaint()
      }
      this.touch(id)
    }
    if (fold.holders.size > 0 && this.layout.cellWidth >= 84) return this.repaint() // names are visible
    if (fold.tables.has('nodes') && this.layout.tiles.some((tile) => tile.header > 0)) return this.repaint()
    if (this.dirty.size > 0) this.schedule()
  }

  private regroup(): void {
    const model = currentModel()
    const { by, filter } = this.options!
    const cards = filter ? [...model.cards.values()].filter(filter) : model.cards.values()
    this.list = groups(cards, model.nodes, by)
    this.groupOf.clear()
    for (const card of model.cards.values()) {
      const key = this.key(card)
      if (key !== '-') this.groupOf.set(card.id, key)
    }
    this.colours = null
    this.relayout()
  }

  private relayout(): void {
    const { width, height, compact } = this.options!
    if (width === 0 || height === 0) return
    this.layout = fit(this.list, { width, height, zoom: this.zoom, smallest: compact ? 2 : 3 })
    this.tileOf.clear()
    this.layout.tiles.forEach((tile, number) => tile.cards.forEach((card) => this.tileOf.set(card, number)))
    this.clamp()
    this.repaint()
  }

  private clamp(): void {
    const { width, height } = this.options!
    this.x = Math.max(0, Math.min(this.x, this.layout.width - width))
    this.y = Math.max(0, Math.min(this.y, this.layout.height - height))
  }

  private repaint(): void {
    this.whole = true
    this.schedule()
  }

  private schedule(): void {
    if (this.scheduled) return
    this.scheduled = true
    requestAnimationFrame(() => {
      this.scheduled = false
      this.paint()
    })
  }

  private scene(): Scene {
    const model = currentModel()
    const { colour, match, selected, overlay } = this.options!
    const names = colour === 'model' ? [...model.cards.values()].map((card) => card.product) : model.pools.keys()
    this.colours ??= readColours(this.canvas!, names)
    return {
      layout: this.layout, colour, colours: this.colours, selected, overlay, focused: this.focused, hovered: this.hovered,
      card: (id) => model.cards.get(id), holder: (number) => model.holders.get(number), node: (name) => model.nodes.get(name),
      dimmed: match ? (card) => !match(card) : null,
    }
  }

  private lastColour: Colour | null = null

  private paint(): void {
    const { canvas, options } = this
    if (!canvas || !options || options.width === 0) return
    if (this.lastColour !== options.colour) this.colours = null
    this.lastColour = options.colour
    const ratio = devicePixelRatio || 1
    const size = [Math.round(options.width * ratio), Math.round(options.height * ratio)] as const
    if (canvas.width !== size[0] || canvas.height !== size[1]) {
      canvas.width = size[0]
      canvas.height = size[1]
      canvas.style.width = `${options.width}px`
      canvas.style.height = `${options.height}px`
      this.whole = true
    }
    const context = canvas.getContext('2d', { alpha: false })
    if (!context) return
    context.setTransform(ratio, 0, 0, ratio, -this.x * ratio, -this.y * ratio)
    const scene = this.scene()
    if (this.whole || this.frame) this.paintAll(context, scene, options)
    else for (const number of this.dirty) this.paintNumber(context, scene, number)
    const focused = this.focused === null ? undefined : this.tileOf.get(this.focused)
    if (focused !== undefined) this.paintNumber(context, scene, focused) // its ring reaches over its neighbours
    this.dirty.clear()
    this.whole = false
    if (this.frame) this.paintBand(context, scene.colours)
  }

  private paintNumber(context: CanvasRenderingContext2D, scene: Scene, number: number): void {
    const tile = this.layout.tiles[number]
    const { width, height } = this.options!
    if (!tile || tile.y > this.y + height || tile.y + tile.height < this.y) return
    if (tile.x > this.x + width || tile.x + tile.width < this.x) return
    paintTile(context, scene, tile)
  }

  private paintAll(context: CanvasRenderingContext2D, scene: Scene, { width, height, by }: MapOptions): void {
    context.fillStyle = scene.colours.canvas
    context.fillRect(this.x, this.y, width, height)
    for (let number = 0; number < this.layout.tiles.length; number++) this.paintNumber(context, scene, number)
    for (const title of this.layout.titles) {
      const name = title.text || (by === 'pool' ? t('Without a pool') : t('Unknown'))
      paintTitle(context, scene, title, name)
    }
    if (this.layout.tiles.length > 0 && performance.getEntriesByName(PAINTED).length === 0) performance.mark(PAINTED)
  }

  private paintBand(context: CanvasRenderingContext2D, colours: Colours): void {
    const box = this.bandBox()
    context.globalAlpha = 0.15
    context.fillStyle = colours.select
    context.fillRect(box.x, box.y, box.width, box.height)
    context.globalAlpha = 1
    context.strokeStyle = colours.select
    context.lineWidth = 1.5
    context.strokeRect(box.x, box.y, box.width, box.height)
  }

  // A point of an event in coordinates of the layout.
  point(event: { clientX: number; clientY: number }): Point {
    const box = this.canvas!.getBoundingClientRect()
    return { x: event.clientX - box.left + this.x, y: event.clientY - box.top + this.y }
  }

  private cardOf(place: Place | null): string | null {
    return place === null ? null : (this.layout.tiles[place.tile]?.cards[place.index] ?? null)
  }

  cardAt(x: number, y: number): string | null {
    return this.cardOf(hit(this.layout, x, y))
  }

  neighbour(card: string | null, direction: Direction): string | null {
    const from = card === null ? null : find(this.layout, card)
    return from === null ? this.first() : this.cardOf(neighbour(this.layout, from, direction))
  }

  first(): string | null {
    return this.layout.tiles[0]?.cards[0] ?? null
  }

  rows(): number {
    return this.layout.shelves.length
  }

  cell(card: string): { row: number; column: number } | null {
    const place = find(this.layout, card)
    if (!place) return null
    const row = this.layout.shelves.findIndex((shelf) => place.tile >= shelf.first && place.tile < shelf.end)
    return { row: row + 1, column: (place.tile - (this.layout.shelves[row]?.first ?? 0)) * 8 + place.index + 1 }
  }

  private boxOf(card: string): Box | null {
    const place = find(this.layout, card)
    const tile = place && this.layout.tiles[place.tile]
    return tile ? cellBox(this.layout, tile, place.index) : null
  }

  boxes(): Record<string, Box> {
    const edge = this.canvas!.getBoundingClientRect()
    const result: Record<string, Box> = {}
    for (const tile of this.layout.tiles) {
      tile.cards.forEach((card, index) => {
        const box = cellBox(this.layout, tile, index)
        result[card] = { ...box, x: box.x - this.x + edge.left, y: box.y - this.y + edge.top }
      })
    }
    return result
  }

  band(from: Point | null, to: Point | null): void {
    this.frame = from && to ? { from, to } : null
    this.repaint()
  }

  private bandBox(): Box {
    const { from, to } = this.frame!
    return { x: Math.min(from.x, to.x), y: Math.min(from.y, to.y), width: Math.abs(to.x - from.x), height: Math.abs(to.y - from.y) }
  }

  inBand(): string[] {
    return this.frame ? within(this.layout, this.bandBox()) : []
  }

  panBy(x: number, y: number): void {
    this.x += x
    this.y += y
    this.clamp()
    this.repaint()
  }

  // Zooms so that what is at the point stays there.
  zoomBy(factor: number, x: number, y: number): void {
    const base = this.layout.cellWidth / this.zoom
    const next = Math.max(1, Math.min(this.zoom * factor, MAX_CELL / base))
    if (next === this.zoom) return
    const old = this.layout
    const anchor = nearest(old, x, y)
    const before = anchor === null ? null : old.tiles[anchor]!
    const offset = { x: x - this.x, y: y - this.y }
    this.zoom = next
    this.relayout()
    const after = anchor === null ? null : this.layout.tiles[anchor]
    if (before && after) {
      this.x = after.x + ((x - before.x) / before.width) * after.width - offset.x
      this.y = after.y + ((y - before.y) / before.height) * after.height - offset.y
    }
    this.clamp()
    this.zoomed(next)
    this.repaint()
  }

  // Zooms around a card, or the middle of the view.
  zoomAt(factor: number, card: string | null): void {
    const box = card ? this.boxOf(card) : null
    if (box) this.zoomBy(factor, box.x + box.width / 2, box.y + box.height / 2)
    else this.zoomBy(factor, this.x + this.options!.width / 2, this.y + this.options!.height / 2)
    if (card) this.reveal(card)
  }

  reset(): void {
    this.zoomBy(1 / this.zoom, this.x, this.y)
  }

  // Moves the view so that the card is in it.
  reveal(card: string): void {
    const box = this.boxOf(card)
    if (!box || !this.options) return
    const { width, height } = this.options
    if (box.x < this.x || box.x + box.width > this.x + width) this.x = box.x + box.width / 2 - width / 2
    if (box.y < this.y || box.y + box.height > this.y + height) this.y = box.y + box.height / 2 - height / 2
    this.clamp()
    this.repaint()
  }
}

function nearest(layout: Layout, x: number, y: number): number | null {
  let best: number | null = null
  let distance = Infinity
  layout.tiles.forEach((tile, number) => {
    const away = Math.hypot(Math.max(tile.x - x, x - tile.x - tile.width, 0), Math.max(tile.y - y, y - tile.y - tile.height, 0))
    if (away < distance) {
      distance = away
      best = number
    }
  })
  return best
}
