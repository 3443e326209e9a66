// SPDX-License-Identifier: Apache-2.0

package top

import (
	"context"
	"fmt"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/lklrun/lklrun/internal/base/text"
	"github.com/lklrun/lklrun/internal/diag/live"
	"github.com/lklrun/lklrun/internal/stack/ctlproto"
)

// killLimit is the timeout for ending a connection.
const killLimit = 5 * time.Second

// killedMsg is the result of ending a connection.
type killedMsg struct{ text string }

// confirmKill asks whether to end the selected row. The answer applies to that row, even if
// the order of the rows changes before the answer.
func (m *model) confirmKill() {
	if r, ok := m.rowToKill(); ok {
		m.ask, m.doomed, m.stack = killing, r, m.current().conn
	}
}

// rowToKill returns the row to end.
func (m *model) rowToKill() (row, bool) {
	f := m.current()
	all := m.rows()
	at, ok := m.selected(all)
	switch {
	case !ok:
		return row{}, false
	case f.err != nil || f.conn == nil:
		m.say("cannot end connections: the stack does not answer")
		return row{}, false
	case f.conn.Hello().ABI == ctlproto.CTL_ABI_HOST:
		m.say("cannot end connections of the host's own stack; use ss -K")
		return row{}, false
	}
	return all[at], true
}

// name describes a row in a question.
func (r row) name() string {
	if f := r.subflow; f != nil {
		return fmt.Sprintf("subflow %s > %s", f.Local, f.Remote)
	}
	return fmt.Sprintf("%s %s > %s", r.conn.Process, r.conn.Local, r.conn.Remote)
}

// confirm handles the answer to the question.
func (m *model) confirm(key string) tea.Cmd {
	m.ask = nothing
	if key != "y" && key != "Y" {
		m.say("nothing was ended")
		return nil
	}
	r, conn := m.doomed, m.stack
	name := r.name()
	id := ""
	if r.subflow != nil {
		id = r.subflow.ID
	}
	c := *r.conn
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(context.Background(), killLimit)
		defer cancel()
		if err := live.Kill(ctx, conn, &c, id); err != nil {
			return killedMsg{text.OneLine(err.Error())}
		}
		return killedMsg{"ended: " + name}
	}
}
