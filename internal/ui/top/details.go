// SPDX-License-Identifier: Apache-2.0

package top

import (
	"encoding"
	"fmt"
	"reflect"
	"strings"

	"github.com/lklrun/lklrun/internal/diag/live"
	"github.com/lklrun/lklrun/internal/stack/sockdiag"
)

// detailLines returns lines that show all values that the stack reports for the
// selected connection or subflow, with the names of lklctl netstat -o json.
func (m *model) detailLines() []string {
	all := m.rows()
	at, ok := m.selected(all)
	if !ok {
		return []string{"The connection has ended."}
	}
	r := all[at]
	c := r.conn
	lines := []string{fmt.Sprintf("%s %s > %s %s", c.Proto, c.Local, c.Remote, c.State)}
	for _, p := range c.Sockets.Processes {
		lines = append(lines, fmt.Sprintf("process %s, pid %d, descriptors %s", cut(p.Comm, 32), p.PID, strings.Trim(fmt.Sprint(p.FDs), "[]")))
	}
	if c.Fallback {
		lines = append(lines, "plain TCP: the peer or the path has no MPTCP")
	}
	if r.subflow == nil {
		lines = append(lines, grid(fields(c.Sockets.Socket))...)
	}
	for i, s := range c.Carriers() {
		f := c.Subflows[i]
		if c.Proto == "tcp" || r.subflow != nil && r.subflow.ID != f.ID {
			continue
		}
		lines = append(lines, "", fmt.Sprintf("subflow %s %s > %s %s", f.Iface, f.Local, f.Remote, f.State))
		lines = append(lines, grid(fields(s))...)
	}
	return lines
}

// fields lists the values of a socket with their JSON names. It omits absent values,
// and values that the lines above already show.
func fields(s sockdiag.Socket) (all []string) {
	told := map[string]bool{"proto": true, "family": true, "state": true, "local": true, "remote": true, "iface": true, "processes": true}
	var walk func(v reflect.Value)
	walk = func(v reflect.Value) {
		for i := range v.NumField() {
			name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
			f := v.Field(i)
			if name == "" || name == "-" || told[name] || f.IsZero() {
				continue
			}
			if f.Kind() == reflect.Pointer {
				f = f.Elem()
			}
			switch value := f.Interface().(type) {
			case live.Value:
				if strings.HasSuffix(name, "token") { // tokens are hexadecimal everywhere
					all = append(all, fmt.Sprintf("%s %08x", name, value.N))
					continue
				}
				all = append(all, fmt.Sprintf("%s %d", name, value.N))
				continue
			case encoding.TextMarshaler:
				if text, err := value.MarshalText(); err == nil {
					all = append(all, name+" "+string(text))
				}
				continue
			}
			if f.Kind() == reflect.Struct {
				walk(f)
			} else {
				all = append(all, fmt.Sprintf("%s %v", name, f))
			}
		}
	}
	walk(reflect.ValueOf(s))
	return all
}

// grid puts words side by side.
func grid(words []string) (lines []string) {
	const column = 27 // three columns
	var b strings.Builder
	for _, w := range words {
		if b.Len() > 0 && b.Len()+len(w) > least {
			lines = append(lines, b.String())
			b.Reset()
		}
		if b.Len() == 0 {
			b.WriteString("  ")
		}
		b.WriteString(w)
		for b.Len()%column != 2 || b.String()[b.Len()-1] != ' ' {
			b.WriteByte(' ')
		}
	}
	if b.Len() > 0 {
		lines = append(lines, b.String())
	}
	return lines
}
