// SPDX-License-Identifier: Apache-2.0

package top

import (
	"fmt"
	"strings"

	tea "charm.land/bubbletea/v2"
)

// View draws the screen.
func (m *model) View() tea.View {
	v := tea.NewView(strings.Join(m.lines(), "\n"))
	v.AltScreen = true
	v.DisableBracketedPasteMode = true // pasting is not supported
	return v
}

func (m *model) panes() panes {
	p := panes{width: m.width, levels: blocks, paint: m.o.Paint}
	if m.o.ASCII {
		p.levels = ascii
	}
	return p
}

// lines returns the lines of the screen, one for each line of the terminal.
func (m *model) lines() []string {
	p := m.panes()
	var lines []string
	switch m.screen {
	case help:
		lines = m.page(p, helpText)
	case details:
		lines = m.page(p, m.detailLines())
	default:
		lines = m.tables(p)
	}
	for len(lines) < m.height-1 {
		lines = append(lines, "")
	}
	lines = append(lines[:max(0, m.height-1)], m.foot(p))
	return lines
}

// page returns the visible part of a text, which may be longer than the terminal.
func (m *model) page(p panes, text []string) []string {
	room := max(1, m.height-1)
	m.scroll = min(m.scroll, max(0, len(text)-room))
	var lines []string
	for _, l := range text[m.scroll:min(len(text), m.scroll+room)] {
		lines = append(lines, p.fit(l))
	}
	return lines
}

// instancesMost is the maximum number of instances that are listed at once.
const instancesMost = 6

// above draws the part above the connections.
func (m *model) above(p panes) []string {
	lines := []string{p.paint.Bold(m.status(p))}
	if len(m.instances) == 0 {
		what := "no instance is running; new ones appear here"
		if m.o.Name != "" {
			what = fmt.Sprintf("waiting for instance %q", m.o.Name)
		}
		return append(lines, "", p.fit("  "+what))
	}
	lines = append(lines, p.paint.Dim(p.instanceHead()))
	current := m.current()
	at, most := 0, uint64(0)
	for i, f := range m.instances {
		if f == current {
			at = i
		}
		most = max(most, highest(p.instanceGraph(), f.history.Rates("")))
	}
	from := max(0, min(at-instancesMost/2, len(m.instances)-instancesMost))
	for _, f := range m.instances[from:min(len(m.instances), from+instancesMost)] {
		l := p.instanceLine(f, f == current, most, m.now)
		switch {
		case f.err != nil:
			l = p.paint.Red(l)
		case f == current:
			l = p.paint.Bold(l)
		}
		lines = append(lines, l)
	}
	if current.snapshot == nil {
		return append(lines, "", p.fit("  waiting for the first sample"))
	}
	s := current.snapshot
	lines = append(lines, p.title(s, m.now), p.paint.Dim(p.linkHead()))
	lines = append(lines, p.linkLines(s, current.history)...)
	return append(lines, p.paint.Dim(p.connectionHead(m.by, m.inverted)))
}

// shown returns the number of connection rows that fit on the screen.
func (m *model) shown() int { return max(1, m.height-1-len(m.above(m.panes()))) }

func (m *model) tables(p panes) []string {
	lines := m.above(p)
	f := m.current()
	if f == nil || f.snapshot == nil {
		return lines
	}
	all := m.rows()
	at, ok := m.selected(all)
	room := max(1, m.height-1-len(lines))
	if ok {
		m.at = at
		m.top = min(max(m.top, at-room+1), at, max(0, len(all)-room))
	} else {
		return append(lines, p.fit(m.none(f)))
	}
	most := p.highestOf(all, f.history)
	for i, r := range all[m.top:min(len(all), m.top+room)] {
		l := p.connectionLine(r, f.history, most, m.top+i == at)
		if m.top+i == at {
			l = p.paint.Bold(l)
		}
		lines = append(lines, l)
	}
	return lines
}

// none explains why no connection is listed.
func (m *model) none(f *followed) string {
	if m.filter != "" && len(f.snapshot.Connections) > 0 {
		return fmt.Sprintf("  no connection contains %q", m.filter)
	}
	return "  no connections"
}

// status returns the first line of the screen.
func (m *model) status(p panes) string {
	words := []string{"lklctl top:"}
	if n := len(m.instances); n == 1 {
		words = append(words, "1 instance,")
	} else {
		words = append(words, fmt.Sprintf("%d instances,", n))
	}
	words = append(words, "every "+seconds(m.monitor.Interval()))
	if m.paused {
		words = append(words, "PAUSED (Z)")
	}
	if m.filter != "" {
		words = append(words, "filter: "+m.filter)
	}
	if f := m.current(); f != nil && f.snapshot != nil && f.snapshot.Totals.Omitted > 0 {
		words = append(words, fmt.Sprintf("(%d connections not listed)", f.snapshot.Totals.Omitted))
	}
	return p.fit(line(cell{strings.Join(words, " "), p.width - 9}, cell{m.now.Format("15:04:05"), -8}))
}

// foot returns the last line of the screen: a question, the result of an action, or
// the keys.
func (m *model) foot(p panes) string {
	switch m.ask {
	case searching:
		return p.fit("Search: " + m.word + "_  F3: next, Enter: done")
	case filtering:
		return p.fit("Filter: " + m.word + "_  Enter: keep, Esc: clear")
	case killing:
		return p.paint.Red(p.fit("End " + m.doomed.name() + "? y/n"))
	}
	switch {
	case m.note != "":
		return p.fit(m.note)
	case m.screen != tables:
		return p.fit("Esc back  Up Down PgUp PgDn  F10 quit")
	}
	return p.paint.Dim(p.fit("F1Help F3Search F4Filter F5Tree F6Sort F9Kill F10Quit Tab:instance l:details"))
}
