// The fleet as a picture: a canvas for the eyes, a grid with one focused cell for the keyboard and screen readers.

import { useEffect, useId, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks'
import { useSize } from '../components.tsx'
import { showBoxes } from '../debug.ts'
import { freeText, share } from '../format.ts'
import { t } from '../i18n.ts'
import { currentModel } from '../model.ts'
import type { Card } from '../wire.ts'
import { MapEngine } from './engine.ts'
import type { By } from './layout.ts'
import { STATE_TITLES, stateKey } from './legend.ts'
import type { Colour } from './legend.ts'
import type { Direction } from './hit.ts'
import type { OverlayShare } from './paint.ts'

export interface FleetMapProps {
  by?: By
  colour?: Colour
  filter?: (card: Card) => boolean // only these cards are on the map
  match?: ((card: Card) => boolean) | null // the other cards are dimmed
  overlay?: Map<string, OverlayShare> // placements of a what-if, drawn over the cards
  compact?: boolean // a small map inside a page: no zoom by the wheel, no selection
  height?: number
  label?: string
  selected?: ReadonlySet<string>
  onSelect?: (selected: Set<string>) => void
  onOpen?: (card: string) => void
  onDrop?: (pool: string, cards: string[]) => void
}

const ARROWS: Record<string, Direction> = { ArrowLeft: 'left', ArrowRight: 'right', ArrowUp: 'up', ArrowDown: 'down' }
const NONE: ReadonlySet<string> = new Set()

export function FleetMap(props: FleetMapProps) {
  const id = useId()
  const frame = useRef<HTMLDivElement>(null)
  const canvas = useRef<HTMLCanvasElement>(null)
  const [width, height] = useSize(frame)
  const [hovered, setHovered] = useState<{ card: string; x: number; y: number } | null>(null)
  const [focused, setFocused] = useState<string | null>(null)
  const [zoom, setZoom] = useState(1)
  const [dragging, setDragging] = useState<{ x: number; y: number; pool: string } | null>(null)
  const engine = useMemo(() => new MapEngine(), [])
  const latest = useRef(props)
  latest.current = props

  useLayoutEffect(() => {
    if (!canvas.current) return
    const leave = engine.attach(canvas.current, setZoom)
    if (!props.compact) showBoxes(() => engine.boxes())
    return () => {
      if (!props.compact) showBoxes(null)
      leave()
    }
  }, [])
  useLayoutEffect(() => {
    engine.configure({
      by: props.by ?? 'none', colour: props.colour ?? 'use', filter: props.filter ?? null, match: props.match ?? null,
      overlay: props.overlay ?? null, selected: props.selected ?? NONE, compact: props.compact ?? false, width, height,
    })
  }, [props.by, props.colour, props.filter, props.match, props.overlay, props.selected, props.compact, width, height])
  useEffect(() => engine.mark({ hovered: hovered?.card ?? null, focused }), [hovered?.card, focused])
  useEffect(() => {
    // The listener must be able to prevent scrolling, so it cannot be passive.
    const element = canvas.current
    if (!element || props.compact) return
    const wheel = (event: WheelEvent) => {
      if (event.deltaY > 0 && engine.zoom <= 1) return
      event.preventDefault()
      const at = engine.point(event)
      engine.zoomBy(Math.exp(-event.deltaY * (event.deltaMode === 1 ? 0.05 : 0.0022)), at.x, at.y)
    }
    element.addEventListener('wheel', wheel, { passive: false })
    return () => element.removeEventListener('wheel', wheel)
  }, [props.compact])

  const focusOn = (card: string | null) => {
    setFocused(card)
    if (card) engine.reveal(card)
  }
  const toggle = (cards: string[]) => {
    const next = new Set(props.selected)
    const all = cards.every((card) => next.has(card))
    for (const card of cards) {
      if (all) next.delete(card)
      else next.add(card)
    }
    props.onSelect?.(next)
  }
  const keyDown = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return
    const direction = ARROWS[event.key]
    if (direction) focusOn(engine.neighbour(focused, direction))
    else if (event.key === 'Home') focusOn(engine.first())
    else if (event.key === 'Enter' && focused) props.onOpen?.(focused)
    else if (event.key === ' ' && focused && props.onSelect) toggle([focused])
    else if ((event.key === '+' || event.key === '=') && !props.compact) engine.zoomAt(1.5, focused)
    else if (event.key === '-' && !props.compact) engine.zoomAt(1 / 1.5, focused)
    else if (event.key === '0' && !props.compact) engine.reset()
    else if (event.key === 'Escape' && props.selected?.size) props.onSelect?.(new Set())
    else return
    event.preventDefault()
    event.stopPropagation()
  }
  const pointerDown = (event: PointerEvent) => {
    if (event.button !== 0) return
    frame.current?.focus({ preventScroll: true })
    startPointer(event, engine, {
      props: () => latest.current, toggle, open: (card) => {
        setFocused(card)
        latest.current.onOpen?.(card)
      }, drag: setDragging, hover: setHovered,
    })
  }
  const hover = (event: PointerEvent) => {
    if (event.buttons !== 0) return
    const at = engine.point(event)
    const card = engine.cardAt(at.x, at.y)
    setHovered(card ? { card, x: event.offsetX, y: event.offsetY } : null)
  }
  const label = props.label ?? t('Map of the cards')
  const cell = focused ? engine.cell(focused) : null
  return (
    <div class={props.compact ? 'map compact' : 'map'} style={props.height ? { height: `${props.height}px` } : undefined}>
      <div
        ref={frame}
        class="map-frame"
        role="grid"
        aria-label={`${label}. ${t('Arrows move, Enter opens, Space selects, t shows a table.')}`}
        aria-rowcount={engine.rows()}
        aria-colcount={-1}
        aria-multiselectable={props.onSelect ? true : undefined}
        aria-activedescendant={cell ? `${id}-cell` : undefined}
        tabIndex={0}
        onKeyDown={keyDown}
        onFocus={() => !focused && setFocused(engine.first())}
        onBlur={() => setFocused(null)}
      >
        <canvas
          ref={canvas}
          aria-hidden="true"
          onPointerDown={pointerDown}
          onPointerMove={hover}
          onPointerLeave={() => setHovered(null)}
          onDblClick={(event) => {
            const at = engine.point(event)
            if (!props.compact) engine.zoomBy(event.shiftKey ? 0.4 : 2.5, at.x, at.y)
          }}
        />
        <div class="hidden" role="row" aria-rowindex={cell ? cell.row : 1}>
          <div
            id={`${id}-cell`}
            role="gridcell"
            aria-colindex={cell ? cell.column : 1}
            aria-selected={props.onSelect ? Boolean(focused && props.selected?.has(focused)) : undefined}
          >
            {focused ? cardText(focused) : label}
          </div>
        </div>
      </div>
      {!props.compact && (
        <div class="map-zoom" role="group" aria-label={t('Zoom')}>
          <button type="button" aria-label={t('Zoom in')} onClick={() => engine.zoomAt(1.6, focused)}>
            +
          </button>
          <button type="button" aria-label={t('Zoom out')} disabled={zoom <= 1} onClick={() => engine.zoomAt(1 / 1.6, focused)}>
            −
          </button>
          {zoom > 1 && (
            <button type="button" aria-label={t('Show the whole fleet')} onClick={() => engine.reset()}>
              ⤢
            </button>
          )}
        </div>
      )}
      {hovered && !dragging && <Tooltip card={hovered.card} x={hovered.x} y={hovered.y} width={width} height={height} />}
      {dragging && (
        <div class="drag-ghost" style={{ left: `${dragging.x + 12}px`, top: `${dragging.y + 12}px` }}>
          {dragging.pool
            ? t('Assign {n} card to {pool}|Assign {n} cards to {pool}', { n: props.selected?.size ?? 0, pool: dragging.pool })
            : t('Drop {n} card on a pool|Drop {n} cards on a pool', { n: props.selected?.size ?? 0 })}
        </div>
      )}
    </div>
  )
}

interface PointerContext {
  props: () => FleetMapProps
  toggle: (cards: string[]) => void
  open: (card: string) => void
  drag: (at: { x: number; y: number; pool: string } | null) => void
  hover: (at: null) => void
}

function poolAt(event: PointerEvent): HTMLElement | null {
  return document.elementFromPoint(event.clientX, event.clientY)?.closest<HTMLElement>('[data-pool]') ?? null
}

// One press of the pointer: a click opens, a shift-drag selects, a drag of selected cards drops them, another drag pans.
function startPointer(down: PointerEvent, engine: MapEngine, context: PointerContext): void {
  const canvas = down.currentTarget as HTMLCanvasElement
  const start = engine.point(down)
  const card = engine.cardAt(start.x, start.y)
  const { selected, onSelect, onDrop, compact } = context.props()
  const carries = card !== null && onDrop !== undefined && selected?.has(card) === true && !down.shiftKey
  const selects = down.shiftKey && onSelect !== undefined
  let last = { x: down.clientX, y: down.clientY }
  let moved = false
  let target: HTMLElement | null = null
  canvas.setPointerCapture(down.pointerId)

  const move = (event: PointerEvent) => {
    if (!moved && Math.hypot(event.clientX - down.clientX, event.clientY - down.clientY) < 4) return
    moved = true
    context.hover(null)
    if (selects) {
      engine.band(start, engine.point(event))
    } else if (carries) {
      const pool = poolAt(event)
      if (target !== pool) {
        target?.classList.remove('drop')
        pool?.classList.add('drop')
        target = pool
      }
      context.drag({ x: event.clientX, y: event.clientY, pool: pool?.dataset['pool'] ?? '' })
    } else if (!compact) {
      engine.panBy(last.x - event.clientX, last.y - event.clientY)
    }
    last = { x: event.clientX, y: event.clientY }
  }
  const up = (event: PointerEvent) => {
    end()
    if (!moved && card) {
      if (onSelect && (event.ctrlKey || event.metaKey || event.shiftKey)) context.toggle([card])
      else context.open(card)
    } else if (moved && selects) {
      const cards = engine.inBand()
      onSelect(new Set([...(selected ?? []), ...cards]))
    } else if (moved && carries && target) {
      onDrop(target.dataset['pool'] ?? '', [...selected!])
    }
    engine.band(null, null)
  }
  const end = () => {
    target?.classList.remove('drop')
    context.drag(null)
    canvas.removeEventListener('pointermove', move)
    canvas.removeEventListener('pointerup', up)
    canvas.removeEventListener('pointercancel', cancel)
  }
  const cancel = () => {
    end()
    engine.band(null, null)
  }
  canvas.addEventListener('pointermove', move)
  canvas.addEventListener('pointerup', up)
  canvas.addEventListener('pointercancel', cancel)
}

// A card in one line, for screen readers.
export function cardText(id: string): string {
  const model = currentModel()
  const card = model.cards.get(id)
  if (!card) return id
  const holders = card.mode === 'MIG' ? card.slots.filter((slot) => slot.holder).length : card.holders.length
  return [
    t('card {index} of node {node}', { index: card.index, node: card.node }),
    card.pool ? t('pool {pool}', { pool: card.pool }) : t('no pool'),
    card.mode === 'none' ? t('not in the ledger') : card.mode,
    t(STATE_TITLES[stateKey(card)]),
    card.mode === 'none' ? '' : `${t('free')}: ${freeText(card)}`,
    t('{n} holder|{n} holders', { n: holders }),
  ].filter(Boolean).join(', ')
}

const SHOWN_HOLDERS = 8

function Tooltip(props: { card: string; x: number; y: number; width: number; height: number }) {
  const model = currentModel()
  const card = model.cards.get(props.card)
  if (!card) return null
  const holders = card.mode === 'MIG'
    ? card.slots.filter((slot) => slot.holder).map((slot) => ({ number: slot.holder, text: slot.profile }))
    : card.holders.map((holder) => ({ number: holder.number, text: share(card, holder.share) }))
  const right = props.x > props.width - 280
  const low = props.y > props.height - 170
  return (
    <div
      class="tooltip"
      aria-hidden="true"
      style={{
        left: right ? 'auto' : `${props.x + 14}px`,
        right: right ? `${props.width - props.x + 14}px` : 'auto',
        top: low ? 'auto' : `${props.y + 14}px`,
        bottom: low ? `${props.height - props.y + 14}px` : 'auto',
      }}
    >
      <strong>{card.id}</strong>
      <div class="muted">
        {[card.product, card.mode === 'none' ? t('not in the ledger') : card.mode, card.pool || t('no pool')].filter(Boolean).join(' · ')}
      </div>
      <div>
        {t(STATE_TITLES[stateKey(card)])}
        {card.mode !== 'none' && ` · ${t('free')}: ${freeText(card)}`}
      </div>
      {card.reason && <div lang="en">{card.reason}</div>}
      {holders.length > 0 && (
        <ul>
          {holders.slice(0, SHOWN_HOLDERS).map((holder) => {
            const row = model.holders.get(holder.number)
            return (
              <li key={`${holder.number}${holder.text}`}>
                <span>{row ? `${row.namespace}/${row.pod}` : model.named ? t('hidden') : '…'}</span>
                <span class="muted">{holder.text}</span>
              </li>
            )
          })}
          {holders.length > SHOWN_HOLDERS && <li class="muted">{t('and {n} more', { n: holders.length - SHOWN_HOLDERS })}</li>}
        </ul>
      )}
    </div>
  )
}
