// A plot over time with its numbers as a table behind it. uPlot is loaded when the first plot is shown.

import type { JSX } from 'preact'
import { useEffect, useRef, useState } from 'preact/hooks'
import type uPlotType from 'uplot'
import { clock, minute, number } from './format.ts'
import { t } from './i18n.ts'
import { coloursOf, onThemeChange } from './theme.ts'

export interface Line {
  label: string
  values: (number | null)[]
  colour: string // the name of a CSS variable
  dashed?: boolean
  filled?: boolean
}

interface PlotProps {
  title: string
  unit: string
  at: number[]
  lines: Line[]
  digits?: number
}

const HEIGHT = 190
const SHOWN_ROWS = 60

function options(props: PlotProps, width: number, host: HTMLElement): uPlotType.Options {
  const style = getComputedStyle(host)
  const colour = coloursOf(host)
  const [ink, grid] = [colour('--muted'), colour('--border')]
  const font = `11px ${style.fontFamily}`
  const axis = { stroke: ink, font, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid, width: 1 } }
  return {
    width,
    height: HEIGHT,
    legend: { show: true, live: true },
    cursor: { drag: { x: false, y: false }, points: { size: 6 } },
    scales: { x: { time: true }, y: { range: (_, low, high) => [Math.min(0, low), high > 0 ? high * 1.08 : 1] } },
    axes: [{ ...axis, values: (_, values) => values.map(minute) }, { ...axis, size: 56, values: (_, values) => values.map((value) => number(value, 2)) }],
    series: [
      { label: t('time'), value: (_, value) => (value ? clock(value) : '') },
      ...props.lines.map((line) => ({
        label: line.label,
        stroke: colour(line.colour),
        width: 2,
        spanGaps: false,
        points: { show: false },
        ...(line.dashed ? { dash: [6, 4] } : {}),
        ...(line.filled ? { fill: `color-mix(in srgb, ${colour(line.colour)} 18%, transparent)` } : {}),
        value: (_: uPlotType, value: number | null) => (value === null ? '' : `${number(value, props.digits ?? 2)} ${props.unit}`.trim()),
      })),
    ],
  }
}

export function Plot(props: PlotProps): JSX.Element {
  const host = useRef<HTMLDivElement>(null)
  const plot = useRef<uPlotType | null>(null)
  const [failed, setFailed] = useState('')
  const [round, setRound] = useState(0)
  const shape = props.lines.map((line) => line.label).join()

  useEffect(() => onThemeChange(() => setRound((last) => last + 1)), [])
  useEffect(() => {
    let gone = false
    const box = host.current!
    const resize = new ResizeObserver(() => plot.current?.setSize({ width: box.clientWidth, height: HEIGHT }))
    import('uplot').then(
      ({ default: Plotter }) => {
        if (gone) return
        plot.current = new Plotter(options(props, box.clientWidth, box), data(props), box)
        resize.observe(box)
      },
      () => gone || setFailed(t('The part of the page that draws plots could not be loaded. The table has the numbers.')),
    )
    return () => {
      gone = true
      resize.disconnect()
      plot.current?.destroy()
      plot.current = null
    }
  }, [shape, round])
  useEffect(() => plot.current?.setData(data(props)), [props.at, props.lines])

  return (
    <figure class="plot">
      <figcaption>{props.title}</figcaption>
      <div ref={host} class="plot-canvas" aria-hidden="true" />
      {failed && <p class="muted">{failed}</p>}
      <details>
        <summary>{t('Numbers of this plot')}</summary>
        <Numbers {...props} />
      </details>
    </figure>
  )
}

function data(props: PlotProps): uPlotType.AlignedData {
  return [props.at, ...props.lines.map((line) => line.values)]
}

function Numbers({ title, unit, at, lines, digits = 2 }: PlotProps): JSX.Element {
  const step = Math.max(1, Math.ceil(at.length / SHOWN_ROWS))
  const rows = at.map((_, index) => index).filter((index) => (at.length - 1 - index) % step === 0).reverse()
  return (
    <div class="plot-numbers" tabIndex={0} role="group" aria-label={title}>
      <table>
        <thead>
          <tr>
            <th scope="col">{t('time')}</th>
            {lines.map((line) => <th scope="col">{line.label}{unit && `, ${unit}`}</th>)}
          </tr>
        </thead>
        <tbody>
          {rows.map((index) => (
            <tr key={at[index]}>
              <th scope="row">{clock(at[index])}</th>
              {lines.map((line) => <td>{number(line.values[index], digits)}</td>)}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  )
}
