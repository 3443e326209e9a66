// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/lklrun/lklrun/cmd/lklctl/internal/verb"
	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/diag/sysctl"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

// standard is the file name that means standard input or output.
const standard = "-"

// loadFile reads a file of settings.
func loadFile(name string) ([]sysctl.Line, error) {
	f := os.Stdin
	if name != standard {
		var err error
		if f, err = os.Open(name); err != nil {
			return nil, exit.Usagef("--load: %v", err)
		}
		defer f.Close()
	} else {
		name = "standard input"
	}
	lines, err := sysctl.Parse(f, name)
	if err != nil {
		return nil, &exit.UsageError{Err: err}
	}
	return lines, nil
}

// change writes settings, or shows the changes that it would make.
func (s *settings) change(ctx context.Context, conn *stackconn.Conn, lines []sysctl.Line) error {
	changes, err := sysctl.Plan(ctx, conn, lines, s.ignore)
	if err != nil {
		if len(changes) > 1 {
			err = fmt.Errorf("%w; no setting was changed", err)
		}
		return err
	}
	if s.dryRun {
		return s.showPlan(changes)
	}
	if err := sysctl.Apply(ctx, conn, changes); err != nil {
		return err
	}
	object := map[string]string{}
	var now []sysctl.Setting
	for i := range changes {
		ch := &changes[i]
		switch {
		case ch.Error != "":
			cli.Note(s.Stderr, verb.Program, "%s", ch.Error)
			continue
		case ch.Differs():
			cli.Note(s.Stderr, verb.Program, "%s: the stack changed the value %s to %s", ch.Key, ch.Asked, *ch.New)
		case ch.Key == "net.ipv4.tcp_congestion_control" && ch.Old != nil && !ch.Same():
			if n := established(ctx, conn); n > 0 {
				cli.Note(s.Stderr, verb.Program, "%s: applies to new connections; open ones (%d) keep theirs", ch.Key, n)
			}
		}
		if ch.New != nil { // nil: the setting is write-only
			object[ch.Key] = *ch.New
			now = append(now, sysctl.Setting{Key: ch.Key, Value: *ch.New})
		}
	}
	return s.Show(object, 1, nil, func(w io.Writer) error { return writeLines(w, now, s.values) })
}

// showPlan shows the planned changes.
func (s *settings) showPlan(changes []sysctl.Change) error {
	differ := []sysctl.Change{}
	t := cli.NewTable("KEY", "NOW", "TO BE").Narrow()
	for i := range changes {
		ch := &changes[i]
		switch {
		case ch.Error != "":
			cli.Note(s.Stderr, verb.Program, "%s", ch.Error)
		case !ch.Same():
			old := ""
			if ch.Old != nil {
				old = *ch.Old
			}
			t.Row(ch.Key, strings.Join(strings.Fields(old), " "), ch.Asked)
			differ = append(differ, *ch)
		}
	}
	return s.Show(differ, len(differ), s.Nothing("nothing would change"), t.Write)
}

// saveFile writes the writable settings to a file atomically. Only the user can
// read the file, because it may contain secret keys.
func (s *settings) saveFile(ctx context.Context, info *instance.Info, conn *stackconn.Conn, patterns []string) error {
	wanted := s.wanted(patterns)
	read, err := sysctl.Below(ctx, conn, "", func(key string) bool { return wanted(key) && sysctl.Writable(ctx, conn, key) })
	if err != nil {
		return err
	}
	if len(read) == 0 {
		return s.Nothing("instance %q has no matching setting that can be written", info.Name)
	}
	left, err := writeSettings(s.save, s.Stdout, read)
	for _, key := range left {
		cli.Note(s.Stderr, verb.Program, "%s: not saved, because its value has several lines", key)
	}
	return err
}

func writeSettings(name string, stdout io.Writer, read []sysctl.Setting) (left []string, err error) {
	if name == standard {
		return sysctl.Save(stdout, read)
	}
	tmp := name + ".new"
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, exit.Usagef("--save: %v", err)
	}
	left, err = sysctl.Save(f, read)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(tmp, name)
	}
	if err != nil {
		_ = os.Remove(tmp) // this process created the file
		return nil, fmt.Errorf("--save: %w", err)
	}
	return left, nil
}

// established returns the number of established TCP connections, among them MPTCP subflows.
func established(ctx context.Context, conn *stackconn.Conn) (n int) {
	for _, name := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		list, _ := conn.ReadFile(ctx, name) // without the file, there are none
		for line := range strings.Lines(string(list)) {
			if f := strings.Fields(line); len(f) > 3 && f[3] == "01" { // TCP_ESTABLISHED
				n++
			}
		}
	}
	return n
}
