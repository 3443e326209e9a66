// SPDX-License-Identifier: Apache-2.0

package top

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/lklrun/lklrun/internal/diag/live"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/stack/sockdiag"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

func known(n uint64) live.Value { return live.Value{N: n, Known: true} }

// made returns a snapshot of an instance with n plain connections and an MPTCP connection
// with two subflows.
func made(name string, n int, at time.Time) live.Update {
	busy, half := 23.4, 0.5
	s := &live.Snapshot{
		Time: at, Interval: 1,
		Instance: live.Instance{Name: name, Stack: "mptcp", Release: "6.12", Engine: "supervise", Command: "curl http://10.71.1.1/file", Started: at.Add(-time.Minute)},
		CPU:      live.CPU{Stack: &busy},
		Totals:   live.Totals{TxRate: known(1_200_000), RxRate: known(186_000_000), Retrans: known(3), RetransRate: &half, Drops: known(12), Resets: known(1), Connections: n + 1, Subflows: 2},
		Links: []live.Link{
			{Name: "lo", Index: 1, State: "up"},
			{Name: "eth0", Index: 2, State: "up", Addrs: []string{"10.71.1.2/24"}, TxRate: known(600_000), RxRate: known(93_000_000), RxDropped: known(0), TxDropped: known(2)},
			{Name: "eth1", Index: 3, State: "no carrier", Addrs: []string{"10.71.2.2/24"}},
		},
	}
	s.Connections = append(s.Connections, live.Connection{
		ID: "a", Proto: "mptcp", State: "ESTAB", Local: "10.71.1.2:42380", Remote: "10.71.1.1:80", Process: "curl", PID: 2421, Token: "023ebfb7",
		TxRate: known(1000), RxRate: known(180_000_000), Retrans: known(3),
		Subflows: []live.Subflow{
			{ID: "a1", Iface: "eth0", State: "ESTAB", Local: "10.71.1.2:42380", Remote: "10.71.1.1:80", RTT: known(130), Cwnd: known(10), Retrans: known(3), TxRate: known(1000), RxRate: known(90_000_000)},
			{ID: "a2", Iface: "eth1", State: "SYN-SENT", Local: "10.71.2.2:58475", Remote: "10.71.2.1:80", Backup: true},
		},
		Sockets: sockdiag.Connection{
			Socket:   sockdiag.Socket{Proto: sockdiag.MPTCP, Cookie: 10, MPTCP: &sockdiag.MPTCPInfo{Token: known(0x23ebfb7), BytesRecv: known(99)}, Processes: []sockdiag.Process{{PID: 2421, Comm: "curl", FDs: []int{5}}}},
			Subflows: []sockdiag.Socket{{Proto: sockdiag.TCP, Cookie: 0xa1, TCP: &sockdiag.TCPInfo{RTT: known(130), Cwnd: known(10)}}, {Proto: sockdiag.TCP, Cookie: 0xa2, Subflow: &sockdiag.Subflow{Flags: sockdiag.FlagJoinLocal}}},
		},
	})
	for i := range n {
		id := fmt.Sprintf("c%03d", i)
		local := fmt.Sprintf("[2001:db8:0:0:1234:5678:9abc:def0]:%d", 40000+i)
		f := live.Subflow{ID: id, Iface: "eth0", State: "ESTAB", Local: local, Remote: "[2001:db8::1]:443", RTT: known(uint64(1000 * (i + 1))), Cwnd: known(uint64(i)), Retrans: known(0)}
		s.Connections = append(s.Connections, live.Connection{
			ID: id, Proto: "tcp", State: "ESTAB", Local: local, Remote: f.Remote, Process: "evil\x1b[2Jname", TxRate: known(uint64(1000 - i)), RxRate: known(0), Subflows: []live.Subflow{f},
			Sockets: sockdiag.Connection{Socket: sockdiag.Socket{Proto: sockdiag.TCP}},
		})
	}
	return live.Update{Time: at, Info: instance.Info{Dir: "/run/lklrun/" + name, Running: true, State: instance.State{Name: name, Stack: "mptcp"}}, Snapshot: s}
}

func press(m *model, keys ...string) (cmd tea.Cmd) {
	codes := map[string]rune{
		"up": tea.KeyUp, "down": tea.KeyDown, "pgdown": tea.KeyPgDown, "home": tea.KeyHome, "end": tea.KeyEnd, "enter": tea.KeyEnter, "esc": tea.KeyEscape,
		"backspace": tea.KeyBackspace, "tab": tea.KeyTab, "f1": tea.KeyF1, "f3": tea.KeyF3, "f4": tea.KeyF4, "f5": tea.KeyF5, "f6": tea.KeyF6, "f9": tea.KeyF9, "f10": tea.KeyF10,
	}
	for _, k := range keys {
		msg := tea.KeyPressMsg{Text: k}
		if code, ok := codes[k]; ok {
			msg = tea.KeyPressMsg{Code: code}
		} else {
			msg.Code, _ = utf8.DecodeRuneInString(k)
		}
		_, cmd = m.Update(msg)
	}
	return cmd
}

func started(n int) *model {
	m := newModel(live.NewMonitor(instance.Place{}, "", time.Second), Options{})
	at := time.Date(2026, 11, 22, 6, 0, 0, 0, time.UTC)
	m.now = at
	for i := range 20 {
		u := made("demo", n, at.Add(time.Duration(i)*time.Second))
		u.Snapshot.Connections[0].RxRate = known(uint64(10_000_000 * i))
		m.Update(updateMsg(u))
	}
	return m
}

// screenOf returns the screen, and checks that no line is too wide.
func screenOf(t *testing.T, m *model) string {
	t.Helper()
	lines := strings.Split(m.View().Content, "\n")
	if len(lines) != m.height {
		t.Errorf("%d lines on a terminal of %d", len(lines), m.height)
	}
	for _, l := range lines {
		if ansi.StringWidth(l) > m.width || strings.ContainsAny(l, "\x1b\r\t") {
			t.Errorf("a line of %d columns on a terminal of %d: %q", ansi.StringWidth(l), m.width, l)
		}
	}
	return strings.Join(lines, "\n")
}

func TestScreens(t *testing.T) {
	m := started(60)
	m.Update(tea.WindowSizeMsg{Width: 80, Height: 24})
	got := screenOf(t, m)
	press(m, "f1")
	got += "\n================\n" + screenOf(t, m)
	press(m, "esc", "l")
	got += "\n================\n" + screenOf(t, m)
	press(m, "esc", "down")
	m.o.ASCII = true
	got += "\n================\n" + screenOf(t, m)
	const path = "testdata/screens.txt"
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(path); err != nil || string(want) != got {
		t.Errorf("not as in %s (UPDATE=1 writes it): %v\n%s", path, err, got)
	}
	for _, size := range [][2]int{{200, 60}, {40, 10}, {10, 3}, {1, 1}} {
		m.Update(tea.WindowSizeMsg{Width: size[0], Height: size[1]})
		for _, key := range []string{"f1", "esc", "l", "esc", "end", "home"} {
			press(m, key)
			screenOf(t, m)
		}
	}
}

// selectedID returns the ID of the selected row.
func selectedID(m *model) string {
	all := m.rows()
	at, _ := m.selected(all)
	return all[at].id()
}

func TestKeys(t *testing.T) {
	m := started(60)
	screenOf(t, m)
	press(m, "down", "down")
	if got := selectedID(m); got != "a/a2" {
		t.Errorf("two rows down is %s", got)
	}
	press(m, "f5") // without subflows, the position stays
	if got := len(m.rows()); got != 61 || selectedID(m) != "c001" {
		t.Errorf("%d rows without subflows, on %s", got, selectedID(m))
	}
	press(m, "end", "f6") // the selection follows the row when it moves
	if selectedID(m) != "c059" || m.by != bySent {
		t.Errorf("sorted by another column: %s", selectedID(m))
	}
	press(m, "<", "<", "home")
	if m.by != byPeer || selectedID(m) != "a" {
		t.Errorf("by peer: %d, %s", m.by, selectedID(m))
	}
	press(m, "I")
	if all := m.rows(); all[len(all)-1].conn.ID != "a" {
		t.Errorf("the other way round: %s is last", all[len(all)-1].id())
	}
	press(m, "I", "<") // by RTT, the largest first
	if all := m.rows(); all[0].conn.ID != "c059" {
		t.Errorf("by RTT: %s is first", all[0].id())
	}

	press(m, "f4", "4", "0", "0", "0", "7", "enter")
	if all := m.rows(); len(all) != 1 || all[0].conn.ID != "c007" || !strings.Contains(screenOf(t, m), "filter: 40007") {
		t.Errorf("filtered: %d rows", len(all))
	}
	press(m, "f4", "x")
	if len(m.rows()) != 0 || !strings.Contains(screenOf(t, m), `no connection contains "40007x"`) {
		t.Error("a filter that nothing passes")
	}
	press(m, "backspace", "esc")
	if len(m.rows()) != 61 {
		t.Errorf("%d rows after the filter was dropped", len(m.rows()))
	}

	press(m, "/", "4", "0", "0", "3")
	if selectedID(m) != "c030" && selectedID(m) != "c039" {
		t.Errorf("searched: %s", selectedID(m))
	}
	first := selectedID(m)
	press(m, "f3", "enter")
	if second := selectedID(m); second == first || !strings.HasPrefix(second, "c03") {
		t.Errorf("the next after %s: %s", first, second)
	}
	press(m, "n")
	if !strings.HasPrefix(selectedID(m), "c03") {
		t.Errorf("once more: %s", selectedID(m))
	}

	for key, want := range map[string]time.Duration{"+": 500 * time.Millisecond, "-": 2 * time.Second} {
		m.monitor.SetInterval(time.Second)
		if press(m, key); m.monitor.Interval() != want {
			t.Errorf("%s: %v, want %v", key, m.monitor.Interval(), want)
		}
	}
	m.monitor.SetInterval(3 * time.Second)
	if press(m, "-"); m.monitor.Interval() != 5*time.Second {
		t.Errorf("from 3 s: %v", m.monitor.Interval())
	}

	press(m, "Z")
	u := made("demo", 1, m.now)
	m.Update(updateMsg(u))
	if got := screenOf(t, m); len(m.rows()) != 61 || !strings.Contains(got, "PAUSED") {
		t.Errorf("held, %d rows", len(m.rows()))
	}
	press(m, "Z")
	m.Update(updateMsg(u))
	if len(m.rows()) != 2 {
		t.Errorf("no longer held: %d rows", len(m.rows()))
	}

	// If there is no connection to the stack, the key asks no question.
	if press(m, "k"); m.ask != nothing {
		t.Error("asks whether to end a connection of a stack that cannot be reached")
	}
	for _, key := range []string{"q", "f10"} {
		if cmd := press(m, key); cmd == nil || cmd() != (tea.QuitMsg{}) {
			t.Errorf("%s does not quit", key)
		}
	}
	press(m, "f1")
	if cmd := press(m, "q"); cmd != nil || m.screen != tables {
		t.Error("q does not leave the help")
	}
}

// A question applies to the row that it names, even if another one is first when it is
// answered.
func TestKillAsks(t *testing.T) {
	m := newModel(live.NewMonitor(instance.Place{}, "", time.Second), Options{})
	u := made("demo", 2, m.now)
	u.Conn = &stackconn.Conn{}
	m.Update(updateMsg(u))
	press(m, "k")
	const question = "End curl 10.71.1.2:42380 > 10.71.1.1:80? y/n"
	if got := screenOf(t, m); !strings.Contains(got, question) {
		t.Errorf("it does not ask %q:\n%s", question, got)
	}
	next := made("demo", 2, m.now)
	next.Conn, next.Snapshot.Connections = u.Conn, next.Snapshot.Connections[1:]
	m.Update(updateMsg(next))
	if got := screenOf(t, m); !strings.Contains(got, question) {
		t.Errorf("it asks about another one:\n%s", got)
	}
	if press(m, "n"); m.ask != nothing {
		t.Error("it asks again")
	}
}

func TestInstances(t *testing.T) {
	m := newModel(live.NewMonitor(instance.Place{}, "", time.Second), Options{})
	if got := screenOf(t, m); !strings.Contains(got, "no instance is running") {
		t.Errorf("none:\n%s", got)
	}
	for i := range 10 {
		m.Update(updateMsg(made(fmt.Sprintf("run%d", i), 3, m.now)))
	}
	if got := screenOf(t, m); !strings.Contains(got, "10 instances") || !strings.Contains(got, "> run0") || strings.Contains(got, "run9") {
		t.Errorf("ten:\n%s", got)
	}
	press(m, "tab", "right", "left", "left", "left")
	if got := screenOf(t, m); !strings.Contains(got, "> run9") || strings.Contains(got, "run0") {
		t.Errorf("the last:\n%s", got)
	}
	end := func(name string, err error) {
		u := made(name, 0, m.now)
		u.Snapshot, u.Err = nil, err
		m.Update(updateMsg(u))
	}
	end("run9", fmt.Errorf("%w: why", live.ErrSilent))
	m.Update(tickMsg(m.now.Add(7 * time.Second)))
	end("run9", live.ErrSilent)
	end("run8", live.ErrPanicked)
	end("run7", live.ErrEnded)
	if got := screenOf(t, m); !strings.Contains(got, "no answer for 7s") || !strings.Contains(got, "kernel panicked") || !strings.Contains(got, "has ended") {
		t.Errorf("in trouble:\n%s", got)
	}
	m.Update(updateMsg(made("run7", 1, m.now))) // the name belongs to another run
	end("run6", live.ErrEnded)
	m.Update(tickMsg(m.now.Add(keepEnded + time.Second)))
	if len(m.instances) != 9 {
		t.Errorf("%d instances are left", len(m.instances))
	}
}

func TestSpark(t *testing.T) {
	for _, tt := range []struct {
		values []live.Value
		most   uint64
		want   string
	}{
		{nil, 0, "    "},
		{[]live.Value{known(0), {}, known(1), known(1000)}, 1000, "  ▁█"},
		{[]live.Value{known(9), known(500), known(1000), known(250), known(2000)}, 1000, "▄█▂█"},
		{[]live.Value{known(0)}, 0, "    "},
	} {
		if got := spark(tt.values, tt.most, 4, blocks); got != tt.want {
			t.Errorf("%v of %d: %q, want %q", tt.values, tt.most, got, tt.want)
		}
	}
	if len(ascii) != len(blocks) {
		t.Error("two sets of levels that differ")
	}
}
