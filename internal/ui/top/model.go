// SPDX-License-Identifier: Apache-2.0

package top

import (
	"errors"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/lklrun/lklrun/internal/diag/live"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

// remembered is the number of values that are kept for each series. It is larger than
// the width of the widest graph.
const remembered = 200

// keepEnded is the time for which an instance that has ended is still listed.
const keepEnded = 30 * time.Second

// followed is the known state of an instance.
type followed struct {
	info     instance.Info
	conn     *stackconn.Conn
	snapshot *live.Snapshot // last snapshot, or nil
	history  *live.History
	err      error     // reason why there is no newer snapshot
	since    time.Time // start of that state
}

// updateMsg is an update of the monitor; tickMsg arrives once a second.
type (
	updateMsg live.Update
	tickMsg   time.Time
)

// model is the state of the screen.
type model struct {
	o       Options
	monitor *live.Monitor
	now     time.Time

	width, height int

	instances []*followed // instances, sorted by name
	chosen    string      // directory of the instance whose tables are shown

	by       column
	inverted bool
	flat     bool // without subflows
	filter   string
	paused   bool

	at     int    // selected row, or the last position of the row with id
	id     string // ID of the selected row; empty: the row number at is selected
	top    int    // first row shown
	screen screen
	scroll int // scroll position of other screens
	ask    ask
	doomed row             // row that the question is about
	stack  *stackconn.Conn // stack of that row
	word   string          // typed input
	search string
	note   string // result of the last action
	noted  time.Time
}

// screen is the content of the terminal.
type screen int

const (
	tables screen = iota
	help
	details
)

// ask is the question in the last line.
type ask int

const (
	nothing ask = iota
	searching
	filtering
	killing
)

func newModel(monitor *live.Monitor, o Options) *model {
	return &model{o: o, monitor: monitor, now: time.Now(), width: least, height: 24}
}

// Init starts the ticks.
func (m *model) Init() tea.Cmd { return tick() }

func tick() tea.Cmd {
	return tea.Tick(time.Second, func(t time.Time) tea.Msg { return tickMsg(t) })
}

// Update handles a key, an update of the monitor, or a tick.
func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case tickMsg:
		m.now = time.Time(msg)
		m.forget()
		return m, tick()
	case updateMsg:
		m.take(live.Update(msg))
	case killedMsg:
		m.say(msg.text)
	case tea.KeyPressMsg:
		return m, m.key(msg)
	}
	return m, nil
}

// take handles an update of the monitor.
func (m *model) take(u live.Update) {
	at, ok := slices.BinarySearchFunc(m.instances, u.Info, func(f *followed, i instance.Info) int { return strings.Compare(f.info.Files(), i.Files()) })
	if !ok {
		m.instances = slices.Insert(m.instances, at, &followed{info: u.Info, history: live.NewHistory(remembered)})
	}
	f := m.instances[at]
	if errors.Is(f.err, live.ErrEnded) { // another run may now have its name
		*f = followed{history: live.NewHistory(remembered)}
	}
	f.info, f.conn = u.Info, u.Conn
	if f.err == nil || u.Err == nil || !errors.Is(f.err, live.ErrSilent) || !errors.Is(u.Err, live.ErrSilent) {
		f.since = m.now
	}
	if f.err = u.Err; u.Err != nil || m.paused && f.snapshot != nil {
		return
	}
	f.snapshot = u.Snapshot
	f.history.Add(u.Snapshot)
	if m.current() == nil {
		m.chosen = u.Info.Files()
	}
}

// forget drops instances that ended a while ago, except the one that is shown.
func (m *model) forget() {
	current := m.current()
	m.instances = slices.DeleteFunc(m.instances, func(f *followed) bool {
		return errors.Is(f.err, live.ErrEnded) && f != current && m.now.Sub(f.since) > keepEnded
	})
	if m.note != "" && m.now.Sub(m.noted) > 5*time.Second {
		m.note = ""
	}
}

// current returns the instance whose tables are shown: the chosen instance, or else
// the first one.
func (m *model) current() *followed {
	for _, f := range m.instances {
		if f.info.Files() == m.chosen {
			return f
		}
	}
	if len(m.instances) > 0 {
		return m.instances[0]
	}
	return nil
}

// rows returns the rows of the current instance.
func (m *model) rows() []row {
	if f := m.current(); f != nil && f.snapshot != nil {
		return rows(f.snapshot, m.by, m.inverted, !m.flat, m.filter)
	}
	return nil
}

// selected finds the selected row. If the rows are sorted differently, the
// selection follows the connection.
func (m *model) selected(all []row) (int, bool) {
	if len(all) == 0 {
		return 0, false
	}
	if m.id != "" {
		if i := slices.IndexFunc(all, func(r row) bool { return r.id() == m.id }); i >= 0 {
			return i, true
		}
	}
	return min(m.at, len(all)-1), true
}

// move selects another row.
func (m *model) move(to int) {
	all := m.rows()
	if len(all) == 0 {
		return
	}
	m.at = min(max(to, 0), len(all)-1)
	m.id = all[m.at].id()
	if m.at == 0 {
		m.id = "" // selects the first row, even if the order changes
	}
}

func (m *model) say(text string) { m.note, m.noted = text, m.now }
