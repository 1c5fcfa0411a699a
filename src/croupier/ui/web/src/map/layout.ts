// Where each card is on the map. Pure: cards and a size in, rectangles out.
//
// Cards of a node form a tile, tiles form shelves, a group starts with its title. The order is by name inside groups, so
// no change of data moves a card, except a change of the group itself.

import type { Card, NodeRow } from '../wire.ts'

export type By = 'pool' | 'zone' | 'model' | 'none' | `label:${string}`

export interface Group {
  key: string
  nodes: { node: string; cards: string[] }[]
}

export interface Tile {
  node: string
  group: string
  cards: string[]
  columns: number
  rows: number
  x: number
  y: number
  width: number
  height: number
  header: number // height of the node's name
}

export interface Title {
  text: string
  x: number
  y: number
  width: number
  cards: number
}

export interface Shelf {
  y: number
  height: number
  first: number // index of the first tile
  end: number
}

export interface Layout {
  tiles: Tile[]
  shelves: Shelf[]
  titles: Title[]
  cellWidth: number
  cellHeight: number
  width: number
  height: number
  perNode: boolean // one cell is a node: too many cards to show each
}

// Where shelves break: fixed by the fit, kept while zooming, so that the picture only grows.
interface Break {
  group: string
  node: string
  cards: string[]
  columns: number
  newShelf: boolean
  newGroup: boolean
}

export const COLUMNS = 8
export const RATIO = 2.3 // height of a cell to its width
const MAX_RATIO = 3.4 // where the area has room below
export const GAP = 5
export const GROUP_GAP = 16
export const TITLE = 20
export const HEADER = 14
export const MARGIN = 6
export const MAX_CARDS = 20_000
const MAX_FIT = 96
const NAMED = 76 // width of a tile from which the node's name is shown

const collator = new Intl.Collator('en', { numeric: true })
const byName = (a: string, b: string) => collator.compare(a, b)

export function groupOf(card: Card, node: NodeRow | undefined, by: By): string {
  if (by === 'pool') return card.pool
  if (by === 'zone') return node?.zone ?? ''
  if (by === 'model') return card.product || (node?.model ?? '')
  if (by === 'none') return ''
  return node?.groups?.[by.slice('label:'.length)] ?? ''
}

// Groups in the order of their names; cards without a group are last.
export function groups(cards: Iterable<Card>, nodes: Map<string, NodeRow>, by: By): Group[] {
  const found = new Map<string, Map<string, Card[]>>()
  for (const card of cards) {
    const key = groupOf(card, nodes.get(card.node), by)
    let members = found.get(key)
    if (!members) found.set(key, (members = new Map()))
    const list = members.get(card.node)
    if (list) list.push(card)
    else members.set(card.node, [card])
  }
  const keys = [...found.keys()].sort((a, b) => (a === '' ? 1 : b === '' ? -1 : byName(a, b)))
  return keys.map((key) => ({
    key,
    nodes: [...found.get(key)!]
      .sort(([a], [b]) => byName(a, b))
      .map(([node, list]) => ({
        node,
        cards: list.sort((a, b) => a.index - b.index || byName(a.id, b.id)).map((card) => card.id),
      })),
  }))
}

function tileWidth(columns: number, cell: number): number {
  return columns * cell
}

// Breaks groups into shelves of the given width. A group that fits into the rest of a shelf stays on it.
function breaks(list: Group[], cell: number, width: number, perNode: boolean): Break[] {
  const inner = width - 2 * MARGIN
  const result: Break[] = []
  let x = 0
  for (const group of list) {
    const sizes = group.nodes.map(({ cards }) => (perNode ? 1 : Math.min(COLUMNS, cards.length)))
    const whole = sizes.reduce((sum, columns) => sum + tileWidth(columns, cell) + GAP, 0) - GAP
    if (x > 0) x = x + GROUP_GAP + whole <= inner ? x + GROUP_GAP - GAP : Infinity
    group.nodes.forEach(({ node, cards }, place) => {
      const columns = sizes[place]!
      const size = tileWidth(columns, cell)
      const newShelf = result.length === 0 || x + size > inner + 0.5
      if (newShelf) x = 0
      result.push({ group: group.key, node, cards, columns, newShelf, newGroup: place === 0 })
      x += size + GAP
    })
  }
  return result
}

function place(list: Break[], cell: number, titled: boolean, perNode: boolean, ratio = RATIO): Layout {
  const cellHeight = perNode ? cell : cell * ratio
  const header = !perNode && tileWidth(COLUMNS, cell) >= NAMED ? HEADER : 0
  const layout: Layout = {
    tiles: [], shelves: [], titles: [], cellWidth: cell, cellHeight, width: 0, height: MARGIN, perNode,
  }
  let start = 0
  while (start < list.length) {
    let end = start + 1
    while (end < list.length && !list[end]!.newShelf) end++
    placeShelf(layout, list.slice(start, end), { header, titled })
    start = end
  }
  layout.height += MARGIN - GAP
  layout.width += MARGIN
  return layout
}

function placeShelf(layout: Layout, list: Break[], { header, titled }: { header: number; titled: boolean }): void {
  const { cellWidth: cell, cellHeight } = layout
  const top = layout.height + (titled && list.some((one) => one.newGroup) ? TITLE : 0)
  const first = layout.tiles.length
  let x = MARGIN
  let height = 0
  for (const [index, { group, node, cards, columns, newGroup }] of list.entries()) {
    if (newGroup && index > 0) x += GROUP_GAP - GAP
    const rows = layout.perNode ? 1 : Math.ceil(cards.length / columns)
    const tile: Tile = {
      node, group, cards, columns, rows, x, y: top, header, width: tileWidth(columns, cell), height: rows * cellHeight + header,
    }
    if (newGroup && titled) layout.titles.push({ text: group, x, y: top - TITLE, width: 0, cards: 0 })
    layout.tiles.push(tile)
    const title = layout.titles[layout.titles.length - 1]
    if (title && title.text === group) {
      title.width = Math.max(title.width, x + tile.width - title.x)
      title.cards += cards.length
    }
    height = Math.max(height, tile.height)
    x += tile.width + GAP
  }
  layout.shelves.push({ y: layout.height, height: top - layout.height + height, first, end: layout.tiles.length })
  layout.width = Math.max(layout.width, x - GAP)
  layout.height = top + height + GAP
}

export interface FitOptions {
  width: number
  height: number
  zoom?: number
  smallest?: number // width of a cell below which the map scrolls instead
}

// The largest cells with which all cards fit into the area, times the zoom.
export function fit(list: Group[], { width, height, zoom = 1, smallest = 3 }: FitOptions): Layout {
  const cards = list.reduce((sum, group) => sum + group.nodes.reduce((count, node) => count + node.cards.length, 0), 0)
  const perNode = cards > MAX_CARDS
  const titled = list.length > 1 || (list[0]?.key ?? '') !== ''
  let low = smallest
  let high = MAX_FIT
  const heightOf = (cell: number) => place(breaks(list, cell, width, perNode), cell, titled, perNode).height
  if (heightOf(high) <= height) low = high
  while (high - low > 0.05) {
    const middle = (low + high) / 2
    if (heightOf(middle) <= height) low = middle
    else high = middle
  }
  const tile = perNode ? low : Math.min(low, (width - 2 * MARGIN) / COLUMNS)
  const cell = Math.max(smallest, Math.floor(tile * 4) / 4)
  const broken = breaks(list, cell, width, perNode)
  return place(broken, cell * zoom, titled, perNode, stretched(place(broken, cell, titled, perNode), height))
}

// Few nodes leave room below their shelves: their cells get higher.
function stretched(layout: Layout, height: number): number {
  const rows = layout.shelves.reduce((sum, shelf) => sum + Math.max(...layout.tiles.slice(shelf.first, shelf.end).map((tile) => tile.rows)), 0)
  const more = rows ? Math.floor((height - layout.height) / rows) / layout.cellWidth : 0
  return Math.max(RATIO, Math.min(MAX_RATIO, RATIO + more))
}

export interface Box {
  x: number
  y: number
  width: number
  height: number
}

export function cellBox(layout: Layout, tile: Tile, index: number): Box {
  if (layout.perNode) return { x: tile.x, y: tile.y, width: tile.width, height: tile.height }
  return {
    x: tile.x + (index % tile.columns) * layout.cellWidth,
    y: tile.y + tile.header + Math.floor(index / tile.columns) * layout.cellHeight,
    width: layout.cellWidth,
    height: layout.cellHeight,
  }
}
