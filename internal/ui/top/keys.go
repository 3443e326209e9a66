// SPDX-License-Identifier: Apache-2.0

package top

import (
	"fmt"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"
)

// intervals lists the intervals that the keys + and - select.
var intervals = []time.Duration{
	100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute,
}

// wordMost limits the length of typed input.
const wordMost = 60

// key handles a key.
func (m *model) key(msg tea.KeyPressMsg) tea.Cmd {
	key := msg.String()
	switch {
	case key == "ctrl+c":
		return tea.Quit
	case key == "ctrl+z":
		return tea.Suspend
	case m.ask == killing:
		return m.confirm(key)
	case m.ask != nothing:
		m.typed(key, msg.Text)
		return nil
	case key == "q" || key == "f10":
		if m.screen != tables && key == "q" {
			m.screen = tables
			return nil
		}
		return tea.Quit
	case m.screen != tables:
		m.read(key)
		return nil
	}
	return m.table(key)
}

// read scrolls a screen other than the tables.
func (m *model) read(key string) {
	page := max(1, m.height-3)
	switch key {
	case "up":
		m.scroll--
	case "down":
		m.scroll++
	case "pgup":
		m.scroll -= page
	case "pgdown", "space":
		m.scroll += page
	case "home":
		m.scroll = 0
	case "esc", "l", "enter", "f1", "h", "?":
		m.screen = tables
	}
	m.scroll = max(0, m.scroll) // View applies the upper limit
}

// table handles the keys of the tables.
func (m *model) table(key string) tea.Cmd {
	at, _ := m.selected(m.rows())
	page := max(1, m.shown()-1)
	switch key {
	case "up":
		m.move(at - 1)
	case "down":
		m.move(at + 1)
	case "pgup":
		m.move(at - page)
	case "pgdown":
		m.move(at + page)
	case "home":
		m.move(0)
	case "end":
		m.move(len(m.rows()) - 1)
	case "tab", "right":
		m.choose(1)
	case "shift+tab", "left":
		m.choose(-1)
	case "f1", "h", "?":
		m.screen, m.scroll = help, 0
	case "l", "enter":
		if _, ok := m.selected(m.rows()); ok {
			m.screen, m.scroll = details, 0
		}
	case "f3", "/":
		m.ask, m.word = searching, ""
	case "n":
		m.next(m.search)
	case "f4", "\\":
		m.ask, m.word = filtering, m.filter
	case "f5", "t":
		m.flat = !m.flat
	case "f6", ">", ".":
		m.by = (m.by + 1) % columns
	case "<", ",":
		m.by = (m.by + columns - 1) % columns
	case "I":
		m.inverted = !m.inverted
	case "f9", "k":
		m.confirmKill()
	case "+", "=":
		m.faster(-1)
	case "-":
		m.faster(1)
	case "Z":
		m.paused = !m.paused
	case "esc":
		m.filter, m.note = "", ""
	}
	return nil
}

// choose selects another instance.
func (m *model) choose(by int) {
	n := len(m.instances)
	if n == 0 {
		return
	}
	at := slices.Index(m.instances, m.current())
	m.chosen = m.instances[(at+by+n)%n].info.Files()
	m.at, m.id, m.top = 0, "", 0
}

// faster changes the interval by a number of steps.
func (m *model) faster(by int) {
	now := m.monitor.Interval()
	at := slices.IndexFunc(intervals, func(d time.Duration) bool { return d >= now })
	if at < 0 {
		at = len(intervals)
	}
	if at < len(intervals) && intervals[at] > now && by > 0 {
		by = 0 // the present interval is not in the list
	}
	m.monitor.SetInterval(intervals[min(max(at+by, 0), len(intervals)-1)])
	m.say("sampling every " + seconds(m.monitor.Interval()))
}

func seconds(d time.Duration) string {
	return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + " s"
}

// typed handles a key while a word is typed.
func (m *model) typed(key, text string) {
	switch key {
	case "esc":
		if m.ask == filtering {
			m.filter = ""
		}
		m.ask = nothing
		return
	case "enter":
		if m.ask == searching {
			m.search = m.word
		}
		m.ask = nothing
		return
	case "f3":
		m.next(m.word)
		return
	case "backspace", "ctrl+h":
		_, n := utf8.DecodeLastRuneInString(m.word)
		m.word = m.word[:len(m.word)-n]
	default:
		if len(m.word)+len(text) <= wordMost {
			m.word += text
		}
	}
	if m.ask == filtering {
		m.filter = m.word
		return
	}
	all := m.rows()
	at, ok := m.selected(all)
	if ok && !matches(all[at].conn, m.word) {
		m.next(m.word)
	}
}

// next selects the next connection that matches a word. The search starts with the
// selected connection.
func (m *model) next(word string) {
	all := m.rows()
	at, ok := m.selected(all)
	if !ok || word == "" {
		return
	}
	for n := range len(all) {
		i := (at + 1 + n) % len(all)
		if all[i].subflow == nil && matches(all[i].conn, word) {
			m.move(i)
			m.id = all[i].id() // keep the ID, even if the row is the first one
			return
		}
	}
	m.say(fmt.Sprintf("no connection contains %q", word))
}

// helpText is the help screen (F1).
var helpText = []string{
	"Tab, Right          next instance; Shift-Tab, Left: previous instance",
	"Up Down PgUp PgDn   select a connection or subflow; also Home, End",
	"l, Enter            show all values of the selected connection or subflow",
	"F3, /               search by process, pid, address or token;",
	"                    F3, or n later: next match",
	"F4, \\               show only connections that contain a word; Esc: all",
	"F5, t               show or hide subflows",
	"F6, >, <            sort by another column; I: reverse the order",
	"F9, k               end the selected connection or subflow (asks first)",
	"+, -                refresh more often, less often",
	"Z                   freeze the display",
	"F10, q, Ctrl-C      quit; Ctrl-Z: suspend",
	"",
	"STACK%, PROG%       CPU of the stack and of the program, 100% is one core;",
	"                    with the engine preload, PROG% includes the stack",
	"SENT, RECV          bits per second",
	"GRAPH               both together, latest at the right; one scale per table",
	"RETR/s, RETR        retransmitted TCP segments: per second; in total",
	"DROP                packets that the interface dropped; the line above the",
	"                    interfaces counts those of the whole stack, and resets",
	"CWND                congestion window, in segments",
	"KIND                plain: plain TCP, as the peer or the path has no MPTCP;",
	"                    backup: a subflow that is used only if no other works",
	"-                   not known; a rate needs two samples",
}
